package token

import "testing"

// The gateway's results for the tokens of the cases are those of the SDKs.
func TestVectors_AgreeWithRing(t *testing.T) {
	r := vectorRing(t)
	compared := 0
	for _, v := range vectors() {
		if v.onlySDK || v.raw == "" {
			continue
		}
		compared++
		p, err := r.VerifyPass([]byte(v.raw), v.Room, v.Now)
		if Reason(err) != v.Want.Reason {
			t.Errorf("%s: the gateway's reason is %q, the case's %q", v.Name, Reason(err), v.Want.Reason)
		}
		if err == nil && (p.Session.String() != v.Want.Session || p.Expires != v.Want.Expires) {
			t.Errorf("%s: the gateway reads session %s until %d, the case has %s until %d", v.Name, p.Session, p.Expires, v.Want.Session, v.Want.Expires)
		}
	}
	if compared < 40 {
		t.Errorf("%d cases were compared, want at least 40", compared)
	}
}

// vectorRing returns a gateway's ring with the keys of the cases.
func vectorRing(t *testing.T) *Ring {
	t.Helper()
	return mustRing(t,
		Key{ID: "h1", Alg: HS256, Secret: []byte(vectorSecret("h1")), Active: true},
		Key{ID: "e1", Alg: ES256, Private: vectorECDSA("e1")},
		Key{ID: "d1", Alg: EdDSA, Private: vectorEd25519("d1")})
}
