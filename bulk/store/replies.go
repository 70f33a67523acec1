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

	// Of group_join.
	replyNotJoined = 0
	replyJoined    = 1

	// Of group_resume.
	replyNoGroup    = 0
	replyNotWaiting = 1
	replyWaiting    = 2

	// Of jobs_ack.
	replyAckDone      = 'd'
	replyAckFailed    = 'f'
	replyAckRetry     = 'r'
	replyAckThrottled = 't'
	replyAckReturned  = 'b'
	replyAckDead      = 'x'
	replyAckCancelled = 'c'
	replyAckStale     = 's'
)

// ackStates has the effect of an ack by its code.
var ackStates = map[byte]AckState{
	replyAckDone: AckDone, replyAckFailed: AckFailed, replyAckRetry: AckRetry, replyAckThrottled: AckThrottled,
	replyAckReturned: AckReturned, replyAckDead: AckDead, replyAckCancelled: AckCancelled, replyAckStale: AckStale,
}
