package sqltest

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Servers{M: m}.Run()) }

func TestDatabase_IsEmptyAndOfItsOwn(t *testing.T) {
	for name, s := range map[string]*Server{"postgres": Postgres(t), "mariadb": MariaDB(t)} {
		for range 2 {
			db, err := Open(s.Database(t))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (n integer)"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_ = db.Close()
		}
	}
}
