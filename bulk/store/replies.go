package store

// Codes that scripts reply. The headers in lua/ declare and explain them, each under the name that follows reply here.
const (
	// Of job_cancel.
	replyCancelled = 1
	replyRunning   = 2
	replyNotFound  = 3

	// Of group_reduce.
	replyNotReduced = 0
	replyReduced    = 1
)
