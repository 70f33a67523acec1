package admission

// Codes that the room scripts reply. The headers in lua/ declare and explain them, each under the name that follows reply here.
const (
	replyOK            = "OK"
	replyEpoch         = "EPOCH"
	replyWaiting       = "W"
	replyAdmitted      = "A"
	replyActive        = "C"
	replyLapsed        = "L"
	replyEnded         = "E"
	replyExpired       = "X"
	replyUnknown       = "U"
	replyUnknownClient = "?"

	// Of room_heartbeat.
	replyRevoked = "R"
	replySilent  = "Z"

	// Of room_enter.
	replyConfirmed  = "P"
	replyOpened     = "O"
	replySigned     = "S"
	replyTooMany    = "J"
	replyCharged    = "Y"
	replyNotCharged = "N"
	replyMustWait   = "M"
	replyNewPlace   = "n"
	replyOldPlace   = "o"

	// Of permit_redeem.
	replyRedeemed = "R"
	replySpent    = "S"
	replyOutdated = "O"

	// Of room_approval.
	replyAsked     = "A"
	replyCrowded   = "F"
	replyTaken     = "T"
	replySame      = "S"
	replyWithdrawn = "W"
	replyGone      = "G"
)
