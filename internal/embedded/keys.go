package embedded

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
)

const (
	keysFile    = "keys.json"
	secretBytes = 32
)

// keyFile is the content of keys.json.
type keyFile struct {
	ID     string `json:"id"`
	Alg    string `json:"alg"`
	Secret string `json:"secret"` // base64url without padding
}

// LoadOrCreateKey returns the HS256 key of a store's directory: an id for the token's kid and at least 32 random bytes. The
// first program creates it; concurrent programs get the same key. Whoever can read the file can sign passes.
func LoadOrCreateKey(dir string) (id string, secret []byte, err error) {
	dir, err = prepareDir(dir)
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(dir, keysFile)
	l, err := openLock(filepath.Join(dir, "keys.lock"))
	if err != nil {
		return "", nil, fmt.Errorf("store.dir %s: %w", dir, err)
	}
	defer l.close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := l.take(ctx, unix.LOCK_EX); err != nil {
		return "", nil, err
	}

	id, secret, err = readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(dir, path)
	}
	return id, secret, err
}

// Exists reports whether a server has kept its data in dir.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, dataDir))
	return err == nil
}

// dataDir is the directory of the server's append-only files.
const dataDir = "appendonlydir"

// CheckDir returns an error unless dir can be a store's directory; it creates a missing one. An existing key must be readable.
func CheckDir(dir string) error {
	dir, err := prepareDir(dir)
	if err != nil {
		return err
	}
	if _, _, err := readKey(filepath.Join(dir, keysFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readKey reads the key of a store's directory. The error wraps fs.ErrNotExist if there is none.
func readKey(path string) (id string, secret []byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", nil, fmt.Errorf("the key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", nil, fmt.Errorf("the key %s: other users may read it (mode %#o); chmod 600 it, and remove it if one may have done so: the next start makes a new one", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", nil, fmt.Errorf("the key: %w", err)
	}
	id, secret, err = parseKey(text)
	if err != nil {
		return "", nil, fmt.Errorf("the key %s: %w; restore it, or remove it: the next start makes a new one, and tokens signed with the old one end", path, err)
	}
	return id, secret, nil
}

// createKey writes a new key atomically: after a crash of the machine the file is complete or missing.
func createKey(dir, path string) (string, []byte, error) {
	secret, name := make([]byte, secretBytes), make([]byte, 6)
	_, _ = rand.Read(secret) // never fails
	_, _ = rand.Read(name)
	k := keyFile{ID: "k-" + hex.EncodeToString(name), Alg: "HS256", Secret: base64.RawURLEncoding.EncodeToString(secret)}
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return "", nil, fmt.Errorf("the key: %w", err)
	}
	if err := writeFile(dir, path, append(text, '\n')); err != nil {
		return "", nil, fmt.Errorf("the key %s: %w", path, err)
	}
	return k.ID, secret, nil
}

func writeFile(dir, path string, text []byte) (err error) {
	f, err := os.CreateTemp(dir, ".keys-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return cmp.Or(d.Sync(), d.Close())
}

var keyID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// parseKey reads keys.json. Its errors do not show the secret.
func parseKey(text []byte) (string, []byte, error) {
	var k keyFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return "", nil, errors.New("is not the JSON that was written: {id, alg, secret}")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", nil, errors.New("has something behind its JSON")
	}
	if !keyID.MatchString(k.ID) {
		return "", nil, fmt.Errorf("has the id %q; ids are 1 to 64 letters, digits, _ and -", k.ID)
	}
	if k.Alg != "HS256" {
		return "", nil, fmt.Errorf("has the alg %q; it is HS256", k.Alg)
	}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(k.Secret)
	if err != nil {
		return "", nil, errors.New("has a secret that is not base64url without padding")
	}
	if len(secret) < secretBytes {
		return "", nil, fmt.Errorf("has a secret of %d bytes; %d are needed", len(secret), secretBytes)
	}
	return k.ID, secret, nil
}
