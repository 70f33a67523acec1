package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/freeport"
)

// patience bounds every wait for a server. It only delays failures.
const patience = time.Minute

// ErrNotInstalled is returned by StartPostgres where PostgreSQL is missing.
var ErrNotInstalled = errors.New("not installed")

// Server is a running database server.
type Server struct {
	kind   *kind
	set    []string // settings of PostgreSQL
	dir    string
	port   int
	uid    *syscall.Credential // of the server, where the tests run as root
	cmd    *exec.Cmd
	admin  *sql.DB
	CAFile string // the certificate of the server's TLS; it is for 127.0.0.1
}

// kind is a database program.
type kind struct {
	name    string
	install string // the command that installs it
	find    func() (string, error)
	// prepare makes the data directory; args returns the arguments of the server.
	prepare func(s *Server) error
	args    func(s *Server) []string
	set     []string // settings of the tests' server
	create  string   // the begin of the statement that creates a database for a test
	url     func(s *Server, name string) string
	stop    syscall.Signal // ends the server quickly
}

var (
	shared  = map[*kind]*Server{}
	mu      sync.Mutex
	running bool // in Run
	names   atomic.Int64
)

// Servers runs the tests of a binary and then stops the servers that they have started.
type Servers struct{ M interface{ Run() int } }

// Run runs the tests and returns the exit code.
func (r Servers) Run() int {
	mu.Lock()
	running = true
	mu.Unlock()
	code := r.M.Run()
	mu.Lock()
	defer mu.Unlock()
	for _, s := range shared {
		s.remove()
	}
	return code
}

// Postgres returns the binary's shared PostgreSQL. On its socket every user is trusted, over TCP a password is needed.
func Postgres(t testing.TB) *Server { return get(t, postgres) }

// MariaDB returns the binary's shared MariaDB. It has no users: every name and password is accepted.
func MariaDB(t testing.TB) *Server { return get(t, mariadb) }

// StartPostgres starts a PostgreSQL for a measurement: it has its default settings, but for those given, such as "fsync=off", and takes
// the same connections as that of Postgres. The caller stops it with Stop.
func StartPostgres(set ...string) (*Server, error) { return start(postgres, set) }

// Stop ends a server of StartPostgres and deletes its data.
func (s *Server) Stop() { s.remove() }

// URL returns the administrator's database, over the server's unix socket.
func (s *Server) URL() string { return s.kind.url(s, "public") }

// PID returns the process ID of the server, the parent of its other processes.
func (s *Server) PID() int { return s.cmd.Process.Pid }

func get(t testing.TB, k *kind) *Server {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if !running {
		t.Fatal("sqltest: this package's tests need: func TestMain(m *testing.M) { os.Exit(sqltest.Servers{M: m}.Run()) }")
	}
	if shared[k] == nil {
		s, err := start(k, k.set)
		if err != nil {
			t.Fatal(err)
		}
		shared[k] = s
	}
	return shared[k]
}

// Database creates an empty database for one test and returns its URL, over the server's unix socket. In PostgreSQL it is a schema,
// which takes less time.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", names.Add(1))
	if _, err := s.admin.ExecContext(t.Context(), s.kind.create+name); err != nil {
		t.Fatal(err)
	}
	return s.kind.url(s, name)
}

// Exec runs a statement as the administrator, outside of the tests' databases.
func (s *Server) Exec(t testing.TB, statement string) {
	t.Helper()
	if _, err := s.admin.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// Admin returns the administrator's connections.
func (s *Server) Admin() *sql.DB { return s.admin }

// Addr returns the host:port at which the server listens. TLS is optional there.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Socket returns the path of the server's unix socket.
func (s *Server) Socket() string {
	if s.kind == postgres {
		return filepath.Join(s.dir, ".s.PGSQL."+strconv.Itoa(s.port))
	}
	return filepath.Join(s.dir, "s")
}

// start makes a directory and starts a server in it.
func start(k *kind, set []string) (*Server, error) {
	binary, err := k.find()
	if err != nil {
		return nil, fmt.Errorf("sqltest: %s: %w (%w); a real one is needed: %s", k.name, ErrNotInstalled, err, k.install)
	}
	// Not in t.TempDir, whose name is long: the path of a socket is limited to about 100 bytes.
	dir, err := os.MkdirTemp("", "anteroom-"+k.name)
	if err != nil {
		return nil, err
	}
	s := &Server{kind: k, set: set, dir: dir, CAFile: filepath.Join(dir, "ca.pem")}
	if err := s.begin(binary); err != nil {
		s.remove()
		return nil, fmt.Errorf("sqltest: %s: %w", k.name, err)
	}
	return s, nil
}

func (s *Server) begin(binary string) (err error) {
	if s.uid, err = other(); err != nil {
		return err
	}
	if err := s.writeCertificate(); err != nil {
		return err
	}
	if err := s.own(s.dir); err != nil {
		return err
	}
	if err := s.kind.prepare(s); err != nil {
		return err
	}
	if s.port, err = freeport.Find(); err != nil {
		return err
	}
	if s.cmd, err = s.command(binary, s.kind.args(s)...); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		return err
	}
	return s.await()
}

// await waits until the server accepts connections.
func (s *Server) await() error {
	u := s.kind.url(s, "")
	var err error
	if s.admin, err = Open(u); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = s.admin.PingContext(ctx); err == nil {
			return nil
		}
		var status syscall.WaitStatus
		if pid, _ := syscall.Wait4(s.cmd.Process.Pid, &status, syscall.WNOHANG, nil); pid == s.cmd.Process.Pid || ctx.Err() != nil {
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the server accepts no connections: %w\n%s", err, text)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// command returns a command that runs as the server's user and dies with the test binary.
func (s *Server) command(name string, args ...string) (*exec.Cmd, error) {
	c := exec.Command(name, args...)
	c.Dir = s.dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.uid}
	dieWithTest(c.SysProcAttr)
	return c, nil
}

// other returns the user nobody if the tests run as root, which the servers refuse; otherwise nil.
func other() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// own makes the server's user the owner of files.
func (s *Server) own(paths ...string) error {
	if s.uid == nil {
		return nil
	}
	for _, p := range paths {
		if err := os.Chown(p, int(s.uid.Uid), int(s.uid.Gid)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) remove() {
	if s.admin != nil {
		_ = s.admin.Close()
	}
	if s.cmd != nil && s.cmd.Process != nil {
		// The whole group, since a killed postmaster leaves processes with shared memory.
		_ = s.cmd.Process.Signal(s.kind.stop)
		ended := make(chan struct{})
		go func() {
			_ = s.cmd.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	_ = os.RemoveAll(s.dir)
}

var postgres = &kind{
	name: "postgres", create: "CREATE SCHEMA ", install: "apt-get install postgresql, or brew install postgresql", stop: syscall.SIGINT, // "fast shutdown"
	find: func() (string, error) { return findPostgres("postgres") },
	prepare: func(s *Server) error {
		initdb, err := findPostgres("initdb")
		if err != nil {
			return err
		}
		c, err := s.command(initdb, "-D", filepath.Join(s.dir, "data"), "-N", "-E", "UTF8", "--locale=C", "-U", "admin", "--auth-local=trust", "--auth-host=scram-sha-256")
		if err != nil {
			return err
		}
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("initdb: %w\n%s", err, out)
		}
		return nil
	},
	args: func(s *Server) []string {
		args := []string{"-D", filepath.Join(s.dir, "data"), "-k", s.dir, "-h", "127.0.0.1", "-p", strconv.Itoa(s.port)}
		for _, set := range append([]string{"ssl=on", "ssl_cert_file=" + s.CAFile, "ssl_key_file=" + filepath.Join(s.dir, "key.pem")}, s.set...) {
			args = append(args, "-c", set)
		}
		return args
	},
	set: []string{"fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=8MB", "max_connections=50", "autovacuum=off"},
	url: func(s *Server, schema string) string {
		return fmt.Sprintf("postgres:///postgres?host=%s&port=%d&user=admin&sslmode=disable&search_path=%s", url.QueryEscape(s.dir), s.port, schema)
	},
}

// findPostgres returns a program of PostgreSQL, which Debian has in a directory for each version.
func findPostgres(name string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	if len(found) > 0 {
		return found[len(found)-1], nil
	}
	return exec.LookPath(name)
}

func version(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // any other directory is older
	return n
}

var mariadb = &kind{
	name: "mariadb", create: "CREATE DATABASE ", install: "apt-get install mariadb-server-core, or brew install mariadb", stop: syscall.SIGKILL,
	find: func() (string, error) {
		for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd", "mysqld"} {
			if path, err := exec.LookPath(name); err == nil {
				return path, nil
			}
		}
		return "", errors.New("mariadbd is not in PATH")
	},
	prepare: func(s *Server) error {
		data := filepath.Join(s.dir, "data")
		if err := os.Mkdir(data, 0o700); err != nil {
			return err
		}
		return s.own(data)
	},
	// Without tables of users the server needs no installation, which would take seconds.
	args: func(s *Server) []string {
		return []string{
			"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"), "--socket=" + filepath.Join(s.dir, "s"), "--bind-address=127.0.0.1",
			"--port=" + strconv.Itoa(s.port), "--skip-grant-tables", "--skip-networking=0", "--pid-file=" + filepath.Join(s.dir, "pid"), "--skip-log-bin",
			"--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M", "--innodb-flush-method=nosync", "--innodb-doublewrite=0",
			"--ssl-cert=" + s.CAFile, "--ssl-key=" + filepath.Join(s.dir, "key.pem"),
		}
	},
	url: func(s *Server, database string) string {
		return fmt.Sprintf("mysql://admin@/%s?socket=%s", database, url.QueryEscape(filepath.Join(s.dir, "s")))
	},
}
