package mysqld

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
)

// ownerEnv makes this binary a program that starts a server and then waits to be
// killed: it is the server's data folder and the folder to work in.
const ownerEnv = "PLUGPULL_TEST_MYSQLD_OWNER"

var scratch string // removed by TestMain

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if folders := os.Getenv(ownerEnv); folders != "" {
		return owner(folders)
	}
	dir, err := os.MkdirTemp("", "pp-mysqld-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	return m.Run()
}

// owner starts a server, prints its process id and never returns on its own.
func owner(folders string) int {
	data, dir, _ := strings.Cut(folders, "|")
	p, err := func() (*Process, error) {
		ctx := context.Background()
		in, err := Find(ctx, "")
		if err != nil {
			return nil, err
		}
		s, err := New(in, Config{Datadir: data, Dir: dir})
		if err != nil {
			return nil, err
		}
		p, err := s.Start(ctx)
		if err != nil {
			return nil, err
		}
		return p, p.Await(ctx)
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(p.PID())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 1
}

// need returns the installed MariaDB server, or skips.
func need(t testing.TB) Install {
	t.Helper()
	in, err := Find(context.Background(), "mariadbd")
	if err == nil {
		return in
	}
	testskip.Skip(t, "%v; to run this test: make deps", err)
	return in
}

// template makes the files of an empty server once.
var template = sync.OnceValues(func() (string, error) {
	in, err := Find(context.Background(), "mariadbd")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(scratch, "template")
	return dir, in.Initialise(context.Background(), dir, nil)
})

// config returns a data folder with an empty server's files and a folder beside it.
func config(t testing.TB) Config {
	t.Helper()
	need(t)
	from, err := template()
	require.NoError(t, err)
	root, err := os.MkdirTemp("/dev/shm", "pp-mysqld-") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	c := Config{Datadir: filepath.Join(root, "data"), Dir: filepath.Join(root, "run")}
	require.NoError(t, os.CopyFS(c.Datadir, os.DirFS(from)))
	require.NoError(t, os.Mkdir(c.Dir, 0o700))
	return c
}

// place returns a server that is closed with the test.
func place(t testing.TB, c Config) *Server {
	t.Helper()
	s, err := New(need(t), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// start starts a server and waits for its greeting.
func start(t testing.TB, s *Server) *Process {
	t.Helper()
	p, err := s.Start(limited(t))
	require.NoError(t, err)
	require.NoError(t, p.Await(limited(t)))
	return p
}

func kill(t testing.TB, p *Process) {
	t.Helper()
	end, err := p.Kill(limited(t))
	require.NoError(t, err)
	require.Equal(t, ByUs, end.Cause, end)
}

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
