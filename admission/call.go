package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/anteroom/anteroom/internal/redisstore"
)

// epochError means that the store is not the one that this process knew: the room
// must be restored before anything else.
type epochError struct{ known string }

func (epochError) Error() string { return "the store has another epoch" }

// header is how every room script's answer begins.
type header struct {
	epoch      string
	seq, fence int64
	time, wall int64 // order time and Redis's clock
}

// call runs one room script and returns what follows the header.
func (r *Room) call(ctx context.Context, name string, args ...any) (header, []any, error) {
	k := r.knowledge()
	line := make([]any, 0, 4+len(args))
	line = append(line, r.c.now(), k.epoch, k.seq, r.policyArg())
	line = append(line, args...)
	sent := r.c.mono()
	reply, err := r.c.scripts.Run(ctx, name, r.keys, line...)
	if err != nil {
		return header{}, nil, err
	}
	if len(reply) < 3 {
		return header{}, nil, fmt.Errorf("%s answered %v", name, reply)
	}
	if asString(reply[0]) == "EPOCH" {
		return header{}, nil, epochError{k.epoch}
	}
	h := header{epoch: asString(reply[1]), seq: asInt(reply[2]), fence: asInt(reply[3]), time: asInt(reply[4]), wall: asInt(reply[5])}
	r.learn(h, sent, r.c.mono())
	return h, reply[6:], nil
}

// do is call with a deadline, restoring the room and repeating the call once
// when the store is another than this process knew. Every script is safe to repeat.
func (r *Room) do(ctx context.Context, timeout time.Duration, name string, args ...any) (header, []any, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	h, rest, err := r.call(ctx, name, args...)
	if other, ok := errors.AsType[epochError](err); ok {
		if err = r.restore(ctx, other.known); err == nil {
			h, rest, err = r.call(ctx, name, args...)
		}
	}
	if _, again := errors.AsType[epochError](err); again {
		err = fmt.Errorf("%w: %w", ErrStore, err)
	}
	return h, rest, err
}

func (c *Core) now() int64 {
	if c.o.Now != nil {
		return c.o.Now()
	}
	return 0
}

func asString(v any) string { return redisstore.String(v) }
func asInt(v any) int64     { return redisstore.Int(v) }
func asList(v any) []any    { return redisstore.List(v) }
