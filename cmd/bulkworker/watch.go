package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

func newWatch() *cobra.Command {
	conn := &connection{}
	cmd := newClientCommand(conn, "watch GROUP", "Show a group's progress until it has ended", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		screen := newScreen(cmd.ErrOrStderr())
		defer screen.end()
		quick, steady, err := conn.clients(screen.note)
		if err != nil {
			return err
		}
		// A wrong address should fail soon.
		if _, err := quick.Group(cmd.Context(), args[0]); err != nil {
			return err
		}
		return watch(cmd.Context(), steady, screen, args[0])
	})
	cmd.Long = `watch shows a group's progress on stderr, a bar on a terminal and plain lines elsewhere.
The exit code is 0 when the group is COMPLETED, and 1 when it FAILED or was CANCELLED.`
	conn.patient(cmd)
	return cmd
}

func watch(ctx context.Context, c *client.Client, screen *screen, id string) error {
	defer screen.end()
	shown := &following{screen: screen}
	err := interruptible(ctx, func(ctx context.Context) error {
		for g, err := range c.Watch(ctx, id) {
			if err != nil {
				return err
			}
			shown.group(g)
			if g.Status.Ended() && g.Status != client.Completed {
				reason := ""
				if g.Error != "" {
					reason = ": " + g.Error
				}
				return fmt.Errorf("group %s is %s%s", g.ID, g.Status, reason)
			}
		}
		return nil
	})
	if c, ok := errors.AsType[*coded](err); ok && c.code == codeInterrupted {
		screen.note("group %s goes on; bulkworker watch %s shows it again", id, id)
	}
	return err
}
