package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// usersFile marks a directory as a store's.
const usersFile = "users.lock"

// prepareDir creates dir if it is missing, removes other users' permissions and returns its absolute path without symbolic links,
// so that programs that spell the path differently use the same directory.
func prepareDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("store.dir is empty: name a directory, as ./data")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("store.dir %s: cannot be made: %w; name a directory that this user may write to", dir, err)
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("store.dir %s: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", fmt.Errorf("store.dir %s: %w", abs, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		// A home directory or /tmp must stay open to other users; an empty directory may be closed.
		entries, err := os.ReadDir(abs)
		if err != nil {
			return "", fmt.Errorf("store.dir %s: %w", abs, err)
		}
		if _, err := os.Lstat(filepath.Join(abs, usersFile)); err != nil && len(entries) > 0 {
			return "", fmt.Errorf("store.dir %s: is open to other users (mode %#o) and holds other files; name a directory of its own, or chmod 700 this one",
				abs, info.Mode().Perm())
		}
		if err := os.Chmod(abs, 0o700); err != nil {
			return "", fmt.Errorf("store.dir %s: is open to other users and cannot be closed to them: %w; name a new directory inside it", abs, err)
		}
	}
	if err := unix.Access(abs, unix.W_OK|unix.X_OK); err != nil {
		return "", fmt.Errorf("store.dir %s: cannot be written to: %w; name a directory that this user may write to", abs, err)
	}
	return abs, nil
}

// longestSocket is the most bytes of a unix socket's path on this system, one less than the field for its NUL.
const longestSocket = len(unix.RawSockaddrUnix{}.Path) - 1

// socketPath returns the path of the server's socket for a prepared dir. It is the same for every program of one user.
func socketPath(dir string) (string, error) {
	const name = "redis.sock"
	if p := filepath.Join(dir, name); len(p) <= longestSocket {
		return p, nil
	}
	sum := sha256.Sum256([]byte(dir))
	own := "anteroom-" + strconv.Itoa(os.Getuid()) + "-" + hex.EncodeToString(sum[:8])
	for _, tmp := range []string{os.TempDir(), "/tmp"} {
		p := filepath.Join(tmp, own, name)
		if len(p) > longestSocket {
			continue
		}
		return p, privateDir(filepath.Dir(p))
	}
	return "", fmt.Errorf("store.dir %s: its path is too long for a unix socket (%d bytes at most), and so is that of the temporary directory; name a shorter one",
		dir, longestSocket)
}

// privateDir creates a directory in a place that is open to all users, or accepts one that no other user can have created.
func privateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the socket's directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("the socket's directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().Perm() != 0o700 {
		return fmt.Errorf("the socket's directory %s: is not a directory of this user with mode 0700; remove it, or name a shorter store.dir so that it is not needed", dir)
	}
	return nil
}
