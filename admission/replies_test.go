package admission

import (
	"maps"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/lua"
)

// The reply codes in Go are those of the headers of the room scripts.
func TestReplies_MatchScripts(t *testing.T) {
	declared := map[string]string{}
	set := lua.MustLoad()
	for _, name := range set.Names() {
		if strings.HasPrefix(name, "room_") {
			maps.Copy(declared, set.Script(name).Replies)
		}
	}
	known := map[string]string{
		"OK": replyOK, "EPOCH": replyEpoch, "WAITING": replyWaiting, "ADMITTED": replyAdmitted, "ACTIVE": replyActive, "LAPSED": replyLapsed,
		"ENDED": replyEnded, "EXPIRED": replyExpired, "UNKNOWN": replyUnknown, "UNKNOWN_CLIENT": replyUnknownClient, "CONFIRMED": replyConfirmed,
		"OPENED": replyOpened, "SIGNED": replySigned, "TOO_MANY": replyTooMany, "CHARGED": replyCharged, "NOT_CHARGED": replyNotCharged,
		"NEW_PLACE": replyNewPlace, "OLD_PLACE": replyOldPlace, "MUST_WAIT": replyMustWait, "REVOKED": replyRevoked, "SILENT": replySilent,
		"ASKED": replyAsked, "CROWDED": replyCrowded, "TAKEN": replyTaken, "SAME": replySame, "WITHDRAWN": replyWithdrawn, "GONE": replyGone,
	}
	if !maps.Equal(known, declared) {
		t.Errorf("Go has %v\nlua/ has %v", known, declared)
	}
	permits := map[string]string{"REDEEMED": replyRedeemed, "SPENT": replySpent, "OUTDATED": replyOutdated}
	if declared := set.Script("permit_redeem").Replies; !maps.Equal(permits, declared) {
		t.Errorf("Go has %v\nlua/permit_redeem has %v", permits, declared)
	}
}
