package relay

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
)

const (
	dialTimeout = 10 * time.Second
	// idleBound is how long a database keeps the locks of a relay that sends nothing, because its machine is gone.
	idleBound = 90 * time.Second
)

// local reports whether a connection to a host stays on this machine.
func local(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || host == "localhost" || host[0] == '/' || err == nil && addr.IsLoopback()
}

// defaultTLS returns the sslmode of a URL that has none. To other machines, connections are always encrypted.
func defaultTLS(host string) string {
	if local(host) {
		return "prefer"
	}
	return "require"
}

// connectPostgres accepts the URLs of libpq, and reads its environment variables and password file.
func connectPostgres(u *url.URL) (driver.Connector, error) {
	q := u.Query()
	host := u.Hostname()
	if q.Has("host") {
		host = q.Get("host")
	}
	for name, value := range map[string]string{
		"sslmode": os.Getenv("PGSSLMODE"), "connect_timeout": strconv.Itoa(int(dialTimeout.Seconds())), "application_name": "bulkworker relay",
	} {
		value = cmp.Or(value, defaultTLS(host))
		if !q.Has(name) {
			q.Set(name, value)
		}
	}
	// Others accept it and check nothing. With require, the authority is checked, as libpq does.
	if mode := q.Get("sslmode"); q.Get("sslrootcert") != "" && (mode == "disable" || mode == "allow" || mode == "prefer") {
		return nil, unchecked(mode)
	}
	with := *u
	with.RawQuery = q.Encode()
	return pq.NewConnector(with.String())
}

func missingInPostgres(err error) bool {
	e, ok := errors.AsType[*pq.Error](err)
	return ok && (e.Code.Class() == "42" || e.Code.Class() == "28" || e.Code.Class() == "3D")
}

// connectMySQL accepts mysql://user:password@host:port/database?sslmode=…, or socket=/path instead of a host.
func connectMySQL(u *url.URL) (driver.Connector, error) {
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	if c.DBName = u.Path; c.DBName != "" {
		c.DBName = c.DBName[1:]
	}
	if c.DBName == "" {
		return nil, errors.New("the URL names no database: use mysql://user:password@host:3306/database")
	}
	host, port := u.Hostname(), u.Port()
	port = cmp.Or(port, "3306")
	q := u.Query()
	c.Net, c.Addr = "tcp", net.JoinHostPort(host, port)
	if socket := q.Get("socket"); socket != "" {
		if host != "" {
			return nil, errors.New("the URL names a host and a socket: leave one out")
		}
		c.Net, c.Addr = "unix", socket
	} else if host == "" {
		return nil, errors.New("the URL names no host: use mysql://user:password@host:3306/database, or ?socket=/path")
	}
	for name := range q {
		switch name {
		case "socket", "sslmode", "sslrootcert", "sslcert", "sslkey":
		default:
			return nil, fmt.Errorf("%s is no parameter of a mysql URL: it has socket, sslmode, sslrootcert, sslcert and sslkey", name)
		}
	}
	if c.Net == "tcp" {
		if err := setTLS(c, host, q); err != nil {
			return nil, err
		}
	}
	c.ParseTime, c.Loc, c.InterpolateParams, c.Timeout, c.Logger = true, time.UTC, true, dialTimeout, &mysql.NopLogger{}
	// UTC, since a TIMESTAMP is shown in the session's zone.
	c.Params = map[string]string{"time_zone": "'+00:00'", "wait_timeout": strconv.Itoa(int(idleBound.Seconds()))}
	return mysql.NewConnector(c)
}

// unchecked returns the error of a certificate's authority that no connection would be checked against.
func unchecked(mode string) error {
	return fmt.Errorf("sslrootcert needs sslmode=verify-full: sslmode %s does not check the server's certificate", mode)
}

// setTLS sets the encryption of a connection by parameters with the names that libpq uses.
func setTLS(c *mysql.Config, host string, q url.Values) error {
	mode := cmp.Or(q.Get("sslmode"), defaultTLS(host))
	file := q.Get("sslrootcert")
	if file != "" && (mode == "disable" || mode == "prefer" || mode == "require") {
		return unchecked(mode)
	}
	t := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	switch mode {
	case "disable":
		return nil
	case "prefer":
		t.InsecureSkipVerify, c.AllowFallbackToPlaintext = true, true
	case "require":
		t.InsecureSkipVerify = true
	case "verify-full":
	default:
		return fmt.Errorf("sslmode is %q: use disable, prefer, require (encrypted) or verify-full (encrypted, and the server's certificate is checked)", mode)
	}
	if file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("sslrootcert: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("sslrootcert: %s has no certificate in PEM", file)
		}
	}
	if cert := q.Get("sslcert"); cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, q.Get("sslkey"))
		if err != nil {
			return fmt.Errorf("sslcert, sslkey: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	c.TLS = t
	return nil
}

func missingInMySQL(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return false
	}
	switch e.Number {
	case 1044, 1045, 1049, 1054, 1064, 1142, 1143, 1146, 1698: // access, database, column, table; SKIP LOCKED in a server without it
		return true
	}
	return false
}
