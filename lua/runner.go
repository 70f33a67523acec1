package lua

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrCall is what Run wraps when a caller does not keep to a script's header: a mistake in the program, not an outage.
var ErrCall = errors.New("lua: the call does not fit the script")

// Runner runs scripts on one Redis, or on one cluster. It starts nothing and may be shared.
type Runner struct {
	client  redis.UniversalClient
	set     *Set
	observe func(script string, d time.Duration, err error)
}

// NewRunner makes a Runner. observe is called once for each Run with the time that the store took and the error, if any;
// it may be nil.
func NewRunner(client redis.UniversalClient, set *Set, observe func(script string, d time.Duration, err error)) *Runner {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &Runner{client: client, set: set, observe: observe}
}

// LoadAll puts every script into every master. Run does not need it, but without it the first call of each script is
// longer, and a script that does not compile is found only then. Masters of a cluster that do not answer are left out:
// the rooms of the others are not to wait for them.
func (r *Runner) LoadAll(ctx context.Context) error {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			if answers, err := r.loadNode(ctx, node); answers {
				return err
			}
			return nil
		})
	}
	_, err := r.loadNode(ctx, r.client)
	return err
}

// loadNode also tells whether the node answered, an error or not.
func (r *Runner) loadNode(ctx context.Context, node redis.Scripter) (answers bool, err error) {
	for _, name := range r.set.names {
		sc := r.set.byName[name]
		sha, err := node.ScriptLoad(ctx, sc.Source).Result()
		if err != nil {
			var said redis.Error
			busy := redis.HasErrorPrefix(err, "LOADING") || redis.HasErrorPrefix(err, "BUSY")
			return errors.As(err, &said) && !busy, sc.explain(fmt.Errorf("load script %s: %w", name, err))
		}
		if sha != sc.SHA {
			return true, fmt.Errorf("load script %s: the store calls it %s, we call it %s", name, sha, sc.SHA)
		}
	}
	return true, nil
}

// once keeps go-redis from sending a script a second time after an error that leaves open whether it has run.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Run runs a script: keys in the order of its header, args from now on, each a string, []byte, int or int64.
// The result is what go-redis makes of the reply (int64, string, []any; nil for Lua's false).
//
// A node that lacks the script (new, restarted, promoted, flushed) says so before it runs anything, and then gets its text.
// So does one that has some of the keys while a cluster moves their slot: it is asked again until ctx ends. After any other
// error the script may have run; whether to repeat it is the caller's decision.
func (r *Runner) Run(ctx context.Context, script *Script, keys []string, args ...any) (any, error) {
	if err := script.check(keys, args); err != nil {
		return nil, err
	}
	start := time.Now()
	res, err := r.evalLoaded(ctx, script, keys, args)
	for redis.HasErrorPrefix(err, "TRYAGAIN") && time.Since(start) < longestMove && pause(ctx, movePause) {
		res, err = r.evalLoaded(ctx, script, keys, args)
	}
	if errors.Is(err, redis.Nil) {
		res, err = nil, nil
	}
	if err != nil {
		err = script.explain(fmt.Errorf("run script %s: %w", script.Name, err))
	}
	r.observe(script.Name, time.Since(start), err)
	return res, err
}

const (
	movePause   = 10 * time.Millisecond
	longestMove = 5 * time.Second // for a caller without a deadline
)

// pause waits for d; false: ctx will have ended by then.
func pause(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (r *Runner) evalLoaded(ctx context.Context, script *Script, keys []string, args []any) (any, error) {
	res, err := r.eval(ctx, "evalsha", script.SHA, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		res, err = r.eval(ctx, "eval", script.Source, keys, args)
	}
	return res, err
}

func (r *Runner) eval(ctx context.Context, command, what string, keys []string, args []any) (any, error) {
	line := make([]any, 0, 3+len(keys)+len(args))
	line = append(line, command, what, len(keys))
	for _, k := range keys {
		line = append(line, k)
	}
	line = append(line, args...)
	cmd := once{redis.NewCmd(ctx, line...)}
	cmd.SetFirstKeyPos(3)
	_ = r.client.Process(ctx, cmd) // the command holds its error
	return cmd.Result()
}

// check compares a call with the header.
func (s *Script) check(keys []string, args []any) error {
	if len(keys) != len(s.Keys) {
		return fmt.Errorf("%w: %s takes %d keys %v, got %d", ErrCall, s.Name, len(s.Keys), s.Keys, len(keys))
	}
	if len(args) < 1 || (!s.Variadic && len(args) != len(s.Args)) {
		return fmt.Errorf("%w: %s takes the arguments %v (more may follow: %t), got %d", ErrCall, s.Name, s.Args, s.Variadic, len(args))
	}
	for i, a := range args {
		switch a.(type) {
		case string, []byte, int, int64:
		default:
			return fmt.Errorf("%w: %s: argument %d is a %T; only string, []byte, int and int64 cross over", ErrCall, s.Name, i+1, a)
		}
	}
	return nil
}

// place is how Redis names a line of a script: user_script:12 where it ran, user_script: 12 or @user_script:12 elsewhere.
var place = regexp.MustCompile(`user_script:\s?(\d+)`)

// explain adds the file and line that an error of Redis speaks of.
func (s *Script) explain(err error) error {
	m := place.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	line, convErr := strconv.Atoi(m[1])
	if convErr != nil {
		return err
	}
	file, at := s.Locate(line)
	return fmt.Errorf("lua/%s:%d: %w", file, at, err)
}
