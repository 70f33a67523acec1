package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ApprovalLife is the time in which an action has to be confirmed.
const ApprovalLife = 10 * time.Minute

// Errors of approvals.
var (
	ErrSamePerson = errors.New("the person who asked for an action cannot confirm it")
	ErrNoApproval = errors.New("no such action waits for a confirmation")
	ErrCrowded    = errors.New("too many actions wait for a confirmation")
)

// Approval is an action that waits for a second person.
type Approval struct {
	ID     string `json:"id"`
	Room   string `json:"room"`
	Action string `json:"action"`
	By     string `json:"by"`     // in the audit log
	Person string `json:"person"` // unique name
	Body   string `json:"body"`   // of the request
	At     int64  `json:"at"`     // Redis's clock, µs
	Ends   int64  `json:"ends"`
}

// approvalsKey is the key of the actions in a room that wait for a confirmation.
func approvalsKey(prefix, room string) string { return prefix + ":{room:" + room + "}:approvals" }

// Ask records an action for ApprovalLife. It sets a.ID, a.Room, a.At and a.Ends.
func (r *operators) Ask(ctx context.Context, a *Approval) error {
	a.ID, a.Room, a.At = randomName(), r.id, r.view.RedisNow()
	a.Ends = a.At + ApprovalLife.Microseconds()
	record, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = r.approve(ctx, "ask", a.ID, a.Action, a.By, a.Person, record)
	return err
}

// Confirm removes an action for the person who confirms it, and returns it. Of all callers one succeeds.
func (r *operators) Confirm(ctx context.Context, id, who, person string) (Approval, error) {
	return r.approve(ctx, "take", id, "", who, person, nil)
}

// Withdraw removes an action.
func (r *operators) Withdraw(ctx context.Context, id, who, person string) error {
	_, err := r.approve(ctx, "withdraw", id, "", who, person, nil)
	return err
}

func (r *operators) approve(ctx context.Context, do, id, action, who, person string, record []byte) (a Approval, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.tickTimeout())
	defer cancel()
	keys := []string{approvalsKey(r.c.o.Prefix, r.id), r.keys[keyAudit]}
	v, err := r.c.scripts.Run(ctx, "room_approval", keys, r.c.now(), do, id, r.id, action, who, person, int64(ApprovalLife.Seconds()), string(record))
	if err != nil {
		return a, err
	}
	switch code := v.String(0); code {
	case replyAsked, replyWithdrawn:
		return a, nil
	case replyCrowded:
		return a, ErrCrowded
	case replyGone:
		return a, ErrNoApproval
	case replySame:
		return a, ErrSamePerson
	case replyTaken:
		return a, json.Unmarshal([]byte(v.String(1)), &a)
	default:
		return a, fmt.Errorf("room_approval replied %v", v)
	}
}

// Approvals returns the actions that wait for a confirmation, oldest first.
func (r *operators) Approvals(ctx context.Context) ([]Approval, error) {
	ctx, cancel := context.WithTimeout(ctx, r.tickTimeout())
	defer cancel()
	stored, err := r.c.o.Client.HVals(ctx, approvalsKey(r.c.o.Prefix, r.id)).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	list := []Approval{}
	for _, value := range stored {
		// The record is the last of the value's parts, and is JSON.
		for i := range value {
			var a Approval
			if value[i] == '{' && json.Unmarshal([]byte(value[i:]), &a) == nil {
				if a.Ends > r.view.RedisNow() {
					list = append(list, a)
				}
				break
			}
		}
	}
	slices.SortFunc(list, func(a, b Approval) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}
