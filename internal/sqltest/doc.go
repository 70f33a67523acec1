// Package sqltest starts database servers for tests: PostgreSQL and MariaDB, each once per test binary, in a directory of its own and
// without waiting for disks. A package that uses it needs: func TestMain(m *testing.M) { os.Exit(sqltest.Servers{M: m}.Run()) }.
// bench/bulk starts a PostgreSQL of its own with it.
package sqltest
