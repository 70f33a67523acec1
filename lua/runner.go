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

// ErrCall is wrapped by Run when a call does not match the script's header: a mistake in the program, not an outage.
var ErrCall = errors.New("lua: the call does not fit the script")

// Client has the methods of redis.UniversalClient whose signatures do not mention redis.Client. A package that imports a type with a field of
// redis.UniversalClient compiles the 1,500 promoted methods of redis.Client, which takes more than a second of processor time.
type Client interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Runner runs scripts on one Redis server or cluster. It is safe for concurrent use.
type Runner struct {
	client  Client
	set     *Set
	observe func(script string, d time.Duration, err error)
}

// NewRunner returns a Runner. observe may be nil; otherwise Run calls it once with the time that the store took and the error,
// if any.
func NewRunner(client Client, set *Set, observe func(script string, d time.Duration, err error)) *Runner {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &Runner{client: client, set: set, observe: observe}
}

// LoadAll loads every script on every master. Run works without it, but then the first call of each script takes longer, and
// a script that does not compile is found only by that call. Masters of a cluster that do not reply are skipped: the keys on
// other masters do not depend on them.
func (r *Runner) LoadAll(ctx context.Context) error {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			if replied, err := r.loadNode(ctx, node); replied {
				return err
			}
			return nil
		})
	}
	_, err := r.loadNode(ctx, r.client)
	return err
}

// loadNode loads every script on one node. replied reports whether the node replied, also with an error.
func (r *Runner) loadNode(ctx context.Context, node redis.Scripter) (replied bool, err error) {
	for _, name := range r.set.names {
		sc := r.set.byName[name]
		sha, err := node.ScriptLoad(ctx, sc.Source).Result()
		if err != nil {
			var reply redis.Error
			busy := redis.HasErrorPrefix(err, "LOADING") || redis.HasErrorPrefix(err, "BUSY")
			return errors.As(err, &reply) && !busy, sc.explain(fmt.Errorf("load script %s: %w", name, err))
		}
		if sha != sc.SHA {
			return true, fmt.Errorf("load script %s: the store's hash is %s, want %s", name, sha, sc.SHA)
		}
	}
	return true, nil
}

// once is a command that go-redis does not send again after an error that leaves open whether it has run.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Run runs a script. keys and args follow the header, args beginning with now; each argument is a string, []byte, int or
// int64. Run returns the reply as go-redis decodes it: int64, string, []any, or nil for Lua's false.
//
// Run sends the script's text to a node that lacks the script, as after a restart, and repeats a call while a cluster moves
// the keys' slot, until ctx ends: in both cases nothing has run. After any other error the script may have run, and the
// caller decides whether to repeat it.
func (r *Runner) Run(ctx context.Context, script *Script, keys []string, args ...any) (any, error) {
	if err := script.check(keys, args); err != nil {
		return nil, err
	}
	start := time.Now()
	res, err := r.evalLoaded(ctx, script, keys, args)
	for redis.HasErrorPrefix(err, "TRYAGAIN") && time.Since(start) < longestMove && sleep(ctx, movePause) {
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

// sleep waits for d and returns true, or returns false early if ctx ends before that.
func sleep(ctx context.Context, d time.Duration) bool {
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

// evalLoaded runs a script by its hash, or by its text where the node does not know the hash.
func (r *Runner) evalLoaded(ctx context.Context, script *Script, keys []string, args []any) (any, error) {
	res, err := r.eval(ctx, "evalsha", script.SHA, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		res, err = r.eval(ctx, "eval", script.Source, keys, args)
	}
	return res, err
}

func (r *Runner) eval(ctx context.Context, command, script string, keys []string, args []any) (any, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, script, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	words = append(words, args...)
	cmd := once{redis.NewCmd(ctx, words...)}
	cmd.SetFirstKeyPos(3)
	_ = r.client.Process(ctx, cmd) // the command holds its error
	return cmd.Result()
}

// check compares a call with the header.
func (s *Script) check(keys []string, args []any) error {
	if len(keys) != len(s.keys) {
		return fmt.Errorf("%w: %s takes %d keys %v, got %d", ErrCall, s.Name, len(s.keys), s.keys, len(keys))
	}
	if len(args) < 1 || (!s.variadic && len(args) != len(s.args)) {
		return fmt.Errorf("%w: %s takes the arguments %v (more may follow: %t), got %d", ErrCall, s.Name, s.args, s.variadic, len(args))
	}
	for i, a := range args {
		switch a.(type) {
		case string, []byte, int, int64:
		default:
			return fmt.Errorf("%w: %s: argument %d is a %T; only string, []byte, int and int64 are allowed", ErrCall, s.Name, i+1, a)
		}
	}
	return nil
}

// errorLine matches the line number in an error of Redis: user_script:12, user_script: 12 or @user_script:12.
var errorLine = regexp.MustCompile(`user_script:\s?(\d+)`)

// explain adds to an error of Redis the file and line in which the failing line was written.
func (s *Script) explain(err error) error {
	m := errorLine.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	line, convErr := strconv.Atoi(m[1])
	if convErr != nil {
		return err
	}
	file, at := s.locate(line)
	return fmt.Errorf("lua/%s:%d: %w", file, at, err)
}
