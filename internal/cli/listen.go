package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// CannotListen returns the error for an address that cannot be listened on, with the setting and, where possible, the remedy.
func CannotListen(setting, addr string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: %q is taken by another program; stop that one, or choose another address", setting, addr)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %q may not be listened on (%w); choose a port above 1023, or give the program CAP_NET_BIND_SERVICE", setting, addr, syscall.EACCES)
	}
	return fmt.Errorf("%s: %q: %w", setting, addr, err)
}
