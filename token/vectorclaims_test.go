package token

import (
	"fmt"
	"strings"
)

// claims adds the cases about claims other than times.
func (l *vectorList) claims() {
	es := signES256(vectorECDSA("e1"))
	add := func(name, old, with, reason string) *vector {
		return l.add(name, signed(headES, replaced(goodClaim, old, with), es), reason)
	}
	add("another room", `"sale"`, `"vip"`, "audience")
	add("a room that begins alike", `"sale"`, `"sales"`, "audience")
	add("aud a list", `"sale"`, `["sale"]`, "audience")
	add("aud missing", `"aud":"sale",`, ``, "audience")
	add("aud null", `"sale"`, `null`, "audience")
	v := l.add("a room without a name", signed(headES, replaced(goodClaim, `"sale"`, `""`), es), "audience")
	v.Room, v.Headers = "", [][2]string{{"X-Waiting-Room-Pass", v.raw}}
	add("another issuer", `"anteroom"`, `"anteroom2"`, "issuer")
	add("iss missing", `"iss":"anteroom",`, ``, "issuer")
	add("iss a list", `"anteroom"`, `["anteroom"]`, "issuer")
	add("another issuer and another room", `"iss":"anteroom","aud":"sale"`, `"iss":"x","aud":"x"`, "issuer")
	add("an issuer of other letters than ASCII", `"anteroom"`, `"b\u00fchne \ud83c\udfad"`, "").sdkOnly().Config.Issuer = "bühne 🎭"

	add("sid missing", `,"sid":"`+vectorSID+`"`, ``, "claims")
	add("sid empty", vectorSID, ``, "claims")
	add("sid of 21 characters", vectorSID, vectorSID[1:], "claims")
	add("sid with non-zero trailing bits", vectorSID, vectorSID[:21]+"B", "claims")
	add("sid a number", `"`+vectorSID+`"`, `7`, "claims")
	add("jti missing", `"jti":"`+vectorJTI+`",`, ``, "claims")
	add("jti of 23 characters", vectorJTI, vectorJTI+"A", "claims")
	add("sid twice", `{`, `{"sid":"`+otherSID+`",`, "claims")
	add("aud twice", `{`, `{"aud":"sale",`, "claims")
	add("exp twice, once with an escape", `{`, `{"\u0065xp":1767399999,`, "claims")
	add("an unknown claim twice", `{`, `{"new":1,"new":1,`, "claims")
	add("a claim in capitals", `{`, `{"EXP":1767399999,`, "claims")
	add("nbf", `{`, `{"nbf":1,`, "claims")
	add("unknown claims of a newer gateway", `{`, `{"new":-1.5e3,"more":null,"flag":true,"text":"x\ud83d\ude00\n",`, "")
	add("claims named as members of every object", `{`, `{"__proto__":1,"constructor":"x","length":0,`, "")
	add("an unknown claim with an object", `{`, `{"new":{},`, "claims")
	add("an unknown claim with a list", `{`, `{"new":[1],`, "claims")
	add("off true", `"fn":3`, `"off":true`, "")
	add("off a number", `"fn":3`, `"off":1`, "claims")
	add("fn negative", `"fn":3`, `"fn":-3`, "claims")
	add("fn with a leading zero", `"fn":3`, `"fn":03`, "malformed").sdkOnly()
	add("ord a string", `1767323001234567`, `"1767323001234567"`, "claims")
	add("claims of a waiting token in a pass", `"fn":3`, `"seen":5,"hold":280,"ep":"0f3a9c","ah":"q7Zk","acc":true`, "")

	add("bound to a network or browser", `"fn":3`, `"bnd":"q7Zk_-9aQ2x1B4c8"`, "bound").sdkOnly()
	add("bound, and bound passes are accepted", `"fn":3`, `"bnd":"q7Zk_-9aQ2x1B4c8"`, "").Config.AcceptBound = true
	add("bound to nothing", `"fn":3`, `"bnd":""`, "")
	add("bnd a number", `"fn":3`, `"bnd":7`, "claims")

	add("a revoked session", `"fn":3`, `"fn":3`, "revoked").sdkOnly().Config.Revoked = []string{otherSID, vectorSID}
	add("another session is revoked", `"fn":3`, `"fn":3`, "").Config.Revoked = []string{otherSID, vectorJTI}
	v = add("a revoked session whose pass has expired", `"fn":3`, `"fn":3`, "expired")
	v.Now, v.Config.Revoked = vectorExp+100, []string{vectorSID}

	evacuated := func(name, claims, reason string, ct, iat int64) {
		v := add(name, `"fn":3`, claims, reason)
		v.Config.Revoked, v.Config.Evacuated = []string{otherSID}, map[string]int64{"ct": ct, "iat": iat}
		v.onlySDK = v.onlySDK || reason != ""
	}
	const claimed = `"fn":3,"ct":1767323045000007`
	evacuated("claimed at the evacuation", claimed, "revoked", 1767323045000007, 1767323045)
	evacuated("claimed before the evacuation", claimed, "revoked", 1767323045000008, 1)
	evacuated("claimed after the evacuation", claimed, "", 1767323045000006, 1767399999)
	evacuated("no claim time, issued in the second of the evacuation", `"fn":3`, "revoked", 1, 1767323045)
	evacuated("no claim time, issued after the evacuation", `"fn":3`, "", 1767399999000000, 1767323044)
	add("ct a string", `"fn":3`, `"fn":3,"ct":"5"`, "claims")
}

// times adds the cases about exp and iat.
func (l *vectorList) times() {
	es := signES256(vectorECDSA("e1"))
	add := func(name, old, with, reason string) *vector {
		return l.add(name, signed(headES, replaced(goodClaim, old, with), es), reason)
	}
	at := func(name string, now int64, reason string) {
		l.add(name, signed(headES, goodClaim, es), reason).Now = now
	}
	at("1 s before exp", vectorExp-1, "")
	at("at exp", vectorExp, "")
	at("4 s after exp, within the leeway", vectorExp+4, "")
	at("5 s after exp", vectorExp+5, "expired")
	at("an hour after exp", vectorExp+3600, "expired")
	add("exp missing", `"exp":1767323345,`, ``, "claims")
	add("exp a string", `1767323345`, `"1767323345"`, "claims")
	add("exp a fraction", `1767323345`, `1767323345.5`, "claims")
	add("exp with a fraction of zero", `1767323345`, `1767323345.0`, "claims")
	add("exp with an exponent", `1767323345`, `1e10`, "claims")
	add("exp zero", `1767323345`, `0`, "claims")
	add("exp negative", `1767323345`, `-1`, "claims")
	add("exp null", `1767323345`, `null`, "claims")
	add("exp 2^53", `1767323345`, `9007199254740992`, "claims")
	add("exp of 30 digits", `1767323345`, strings.Repeat("9", 30), "claims")
	add("exp in 366 days", `1767323345`, fmt.Sprint(vectorNow+MaxLife), "").until(vectorNow + MaxLife)
	add("exp in more than 366 days", `1767323345`, fmt.Sprint(vectorNow+MaxLife+1), "claims")
	add("exp in milliseconds", `1767323345`, `1767323345000`, "claims")
	add("iat missing", `"iat":1767323045,`, ``, "claims")
	add("iat a string", `1767323045`, `"1767323045"`, "claims")
	add("iat 5 s in the future, within the leeway", `1767323045`, fmt.Sprint(vectorNow+5), "")
	add("iat 6 s in the future", `1767323045`, fmt.Sprint(vectorNow+6), "future").sdkOnly()
}

// requests adds the cases about cookies and header fields.
func (l *vectorList) requests() {
	es := signES256(vectorECDSA("e1"))
	good := signed(headES, goodClaim, es)
	other := signed(headES, replaced(goodClaim, vectorSID, otherSID), es)
	old := signed(headES, replaced(replaced(goodClaim, "1767323045", "1767320000"), "1767323345", "1767320300"), es)
	bad, waits := signed(headES, goodClaim, signES256(vectorECDSA("e2"))), signed(replaced(headES, "pass+jwt", "wait+jwt"), goodClaim, es)
	cookie := func(text string) [2]string { return [2]string{"Cookie", text} }
	field := func(text string) [2]string { return [2]string{"X-Waiting-Room-Pass", text} }

	l.request("no cookie and no header field", "none")
	l.request("other cookies", "none", cookie("a=1; session=x; wr_sale_ticket="+good))
	l.request("an empty cookie", "none", cookie(hostPass))
	l.request("an empty cookie in quotes", "none", cookie(hostPass+`""`))
	l.request("a cookie without =", "none", cookie("__Host-wr_sale_pass"))
	l.request("the cookie of another room", "none", cookie("__Host-wr_vip_pass="+good))
	l.request("the plain cookie on TLS", "none", cookie("wr_sale_pass="+good))
	l.request("the plain cookie on plain HTTP", "", cookie("wr_sale_pass="+good)).Config.PlainHTTP = true
	l.request("the cookie of TLS on plain HTTP", "none", cookie(hostPass+good)).Config.PlainHTTP = true
	l.request("a cookie name in other letters", "none", cookie("__host-wr_sale_pass="+good))
	l.request("a no-break space before the name", "none", cookie("a=1;\u00a0"+hostPass+good))
	l.request("blanks around name and value", "", cookie("a=1 ;\t __Host-wr_sale_pass \t=  "+good+" ; b=2"))
	l.request("a cookie in quotes", "", cookie(hostPass+`"`+good+`"`))
	l.request("a cookie with one quote", "malformed", cookie(hostPass+`"`+good))
	l.request("no blank behind the semicolon", "", cookie("a=1;"+hostPass+good+";b=2"))
	l.request("two lines of cookies", "", cookie("a=1"), cookie(hostPass+good))
	l.request("first an invalid cookie, then a valid one", "", cookie(hostPass+bad+"; "+hostPass+good))
	l.request("three invalid cookies, then a valid one", "", cookie(hostPass+bad+"; "+hostPass+waits+"; "+hostPass+"x; "+hostPass+good))
	l.request("four invalid cookies, then a valid one", "signature", cookie(hostPass+bad+"; "+hostPass+waits+"; "+hostPass+"x; "+hostPass+"y; "+hostPass+good))
	l.request("empty cookies do not count", "", cookie(strings.Repeat(hostPass+"; ", 5)+hostPass+good))
	l.request("two valid cookies", "", cookie(hostPass+other+"; "+hostPass+good)).session(otherSID)
	l.request("an expired cookie, then a valid one", "", cookie(hostPass+old+"; "+hostPass+good))
	l.request("an invalid cookie, then an expired one", "expired", cookie(hostPass+bad+"; "+hostPass+old)).until(1767320300)
	l.request("a revoked cookie, then an expired and an invalid one", "revoked", cookie(hostPass+good+"; "+hostPass+old+"; "+hostPass+bad)).Config.Revoked = []string{vectorSID}
	l.request("two invalid cookies", "type", cookie(hostPass+waits+"; "+hostPass+bad))
	l.request("the header field", "", field(good))
	l.request("the header field on plain HTTP", "", field(good)).Config.PlainHTTP = true
	l.request("the header field in lower case", "", [2]string{"x-waiting-room-pass", good})
	l.request("the header field before the cookie", "", cookie(hostPass+other), field(good))
	l.request("an invalid header field, then a valid cookie", "", field(bad), cookie(hostPass+good))
	l.request("an expired header field, then an invalid cookie", "expired", field(old), cookie(hostPass+bad)).until(1767320300)
	l.request("an empty header field, then a valid cookie", "", field(""), cookie(hostPass+good))
	l.request("an invalid header field and four invalid cookies, then a valid one", "signature", field(bad), cookie(strings.Repeat(hostPass+"x; ", 4)+hostPass+good))
	l.request("a pass in Authorization", "none", [2]string{"Authorization", "Bearer " + good})
	l.request("a pass in X-Waiting-Room-Token", "none", [2]string{"X-Waiting-Room-Token", good})
	l.request("a quoted header field", "malformed", field(`"`+good+`"`))
}
