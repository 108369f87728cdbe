package scenarios

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/workload"
	"plugpull/powerctl"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestBuiltin(t *testing.T) {
	list, err := Builtin()
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for i, sc := range list {
		assert.NotEmpty(t, sc.Summary, sc.Name)
		if i > 0 {
			assert.Less(t, list[i-1].Name, sc.Name, "in the order of their names")
		}
		again, err := Load(sc.Name)
		require.NoError(t, err)
		assert.Equal(t, sc, again)
	}
	for _, name := range []string{"lab-append", "lab-transfer", "lab-churn"} {
		sc, err := Load(name)
		require.NoError(t, err)
		assert.Equal(t, Durable, sc.Expect, name)
		assert.False(t, sc.Database.AllowNondurable, name)
	}
	control, err := Load("lab-host-control")
	require.NoError(t, err)
	assert.Equal(t, Lossy, control.Expect)
	assert.True(t, control.Database.AllowNondurable)
}

func TestSetsNameBuiltinScenarios(t *testing.T) {
	for _, s := range sets() {
		assert.Contains(t, SetsText(), s.Name+": ")
		assert.Equal(t, s.Members, Expand(s.Name))
		_, err := Load(s.Name)
		assert.ErrorIs(t, err, ErrUnknown, "a set must not hide a scenario")
		for _, name := range s.Members {
			_, err := Load(name)
			assert.NoError(t, err)
		}
	}
	assert.Equal(t, []string{"wal-full"}, Expand("wal-full"))
}

func TestEveryBuiltinHasParametersThatAClientTakes(t *testing.T) {
	list, err := Builtin()
	require.NoError(t, err)
	for _, sc := range list {
		p := workload.Params{
			Run: [16]byte{1}, Profile: sc.Load.Profile,
			PayloadMin: sc.Load.PayloadMin, PayloadMax: sc.Load.PayloadMax, Window: sc.Load.Window,
		}
		assert.NoError(t, p.Validate(), sc.Name)
	}
}

const plainLoop = `scenario: my-loop
summary: the shop's settings on ext4, on a drive with a volatile cache
expect: durable
bench: [loop]
load: {profile: append}
cut: {after: 300ms..700ms}
cycles: 200
`

func TestSamplesAreWhatTheySay(t *testing.T) {
	sc, err := Parse("scenario.yaml", SampleScenario())
	require.NoError(t, err)
	sc.Source = nil
	require.Equal(t, Scenario{
		Name: "my-append", Summary: "single-row commits on the new RAID controller, cut after 2 to 5 seconds",
		Expect: Durable, Benches: []BenchKind{Lab},
		Load:   Workload{Profile: workload.Append, Streams: 8, PayloadMin: 100, PayloadMax: 400},
		Cut:    Cut{After: Range{2 * time.Second, 5 * time.Second}},
		Cycles: 20, Verify: Verify{Last: 2, AllEvery: 50},
	}, sc)

	sc, err = Parse("loop.yaml", SampleLoop())
	require.NoError(t, err)
	plain, err := Parse("plain.yaml", []byte(plainLoop))
	require.NoError(t, err)
	sc.Source, plain.Source = nil, nil
	assert.Equal(t, []Setting{{"innodb_flush_log_at_trx_commit", "1"}}, sc.MySQL.Settings)
	sc.MySQL.Settings = nil
	require.Equal(t, plain, sc, "the sample shows the defaults")
	require.Equal(t, Filesystem{Type: "ext4"}, sc.Filesystem)
	require.Equal(t, int64(512<<20), sc.Drive.Size)
	require.Equal(t, WriteBack, sc.Queue)

	b, err := ParseBench("/etc/lab/bench.yaml", SampleBench())
	require.NoError(t, err)
	b.Source = nil
	pdu := func(args ...string) []string { return append([]string{"/usr/local/bin/pdu", "pdu2"}, args...) }
	require.Equal(t, Bench{
		Name: "rack2-server7", Kind: Lab, File: "/etc/lab/bench.yaml",
		Database: Database{DSN: "mysql://plugpull@192.0.2.7:3306/plugpull", PasswordFile: "/etc/lab/server7.password"},
		Outlet: Outlet{
			Driver: DriverExec, Name: "PDU 2, outlet 3",
			Lists:    map[string][]string{"off": pdu("3", "off"), "on": pdu("3", "on"), "state": pdu("3", "state"), "identify": pdu("serial")},
			Settings: map[string]string{}, Pin: map[string]string{}, Line: 23,
			Timeout: 10 * time.Second, Class: powerctl.Mains, Leave: LeaveOn, Lease: Lease{For: 10 * time.Minute},
		},
		Timing: Timing{Silence: 10 * time.Second, OffDeadline: 30 * time.Second, MinOff: 10 * time.Second, ServerWait: 10 * time.Minute},
	}, b)
}

// The optional keys that the samples show as comments must be as valid.
func TestSamplesWithTheirCommentedKeys(t *testing.T) {
	commented := regexp.MustCompile(`(?m)^( *)# ((?:window|idle|attest|pin|min_on|lease): .*)$`)
	sc, err := Parse("scenario.yaml", commented.ReplaceAll(
		bytes.Replace(SampleScenario(), []byte("profile: append"), []byte("profile: churn"), 1), []byte("$1$2")))
	require.NoError(t, err)
	require.Equal(t, workload.Seq(256), sc.Load.Window)
	require.Equal(t, 5*time.Second, sc.Cut.Idle)
	b, err := ParseBench("bench.yaml", commented.ReplaceAll(SampleBench(), []byte("$1$2")))
	require.NoError(t, err)
	require.Equal(t, AttestMains, b.Attest)
	require.Equal(t, "what identify prints", b.Outlet.Pin["identity"])
	require.Equal(t, 5*time.Second, b.Outlet.MinOn)
	require.Equal(t, Lease{Owner: "lab-a", For: 10 * time.Minute, Dir: "/mnt/lab/outlets"}, b.Outlet.Lease)
}

func TestDefaultsAreThoseOfTheSample(t *testing.T) {
	sample, err := ParseBench("bench.yaml", SampleBench())
	require.NoError(t, err)
	bare, err := ParseBench("bench.yaml", []byte(`bench: a
kind: lab
database: {dsn: "mysql://u@h/s"}
outlet: {driver: exec, name: n, off: [pdu, off], on: [pdu, on], class: drive}
`))
	require.NoError(t, err)
	require.Equal(t, sample.Timing, bare.Timing)
	require.Equal(t, sample.Outlet.Timeout, bare.Outlet.Timeout)
	require.Equal(t, sample.Outlet.Leave, bare.Outlet.Leave)
	require.Nil(t, bare.Outlet.Lists["state"])
}

func TestManualBench(t *testing.T) {
	b, err := ParseBench("b.yaml", []byte(`bench: a
kind: lab
database: {dsn: "mysql://u@[::1]:3307/s?tls=true"}
outlet: {driver: manual, name: the plug behind the rack, class: mains, leave: off}
attest: mains
`))
	require.NoError(t, err)
	require.Equal(t, LeaveOff, b.Outlet.Leave, "off without quotes is the word off, not a truth value")
	require.Zero(t, b.Outlet.Timeout)
}

func TestRelativePathsComeFromTheFilesFolder(t *testing.T) {
	body := `bench: a
kind: lab
database: {dsn: "mysql://u@h/s", password_file: pw}
outlet: {driver: exec, name: n, off: [./pdu, off], on: [pdu, on], class: drive}
`
	dir := t.TempDir()
	path := filepath.Join(dir, "b.yaml")
	require.NoError(t, os.WriteFile(path, []byte(body), 0o600))
	b, err := LoadBench(path)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "pw"), b.Database.PasswordFile)
	require.Equal(t, filepath.Join(dir, "pdu"), b.Outlet.Lists["off"][0])
	require.Equal(t, "pdu", b.Outlet.Lists["on"][0], "a bare name is looked up in PATH")

	t.Chdir(dir)
	b, err = LoadBench("b.yaml")
	require.NoError(t, err)
	require.Equal(t, "./pdu", b.Outlet.Lists["off"][0], "never looked up in PATH")
}

// Each file in testdata/bad is wrong in several ways; the golden file beside it
// holds the whole error, which names every one with its line.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 12)
	for _, path := range files {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			if strings.HasPrefix(name, "bench-") {
				_, err = ParseBench(name, data)
			} else {
				_, err = Parse(name, data)
			}
			var fe *FileError
			require.ErrorAs(t, err, &fe)
			require.NotContains(t, err.Error(), "hunter2", "a password is repeated")
			golden := strings.TrimSuffix(path, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err, "write it with: go test ./scenarios -run TestBadFiles -update")
			require.Equal(t, string(want), fe.Error()+"\n")
		})
	}
}

func TestLoad(t *testing.T) {
	_, err := Load("lab-apend")
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "lab-append", "it says which there are")

	t.Chdir(t.TempDir())
	_, err = Load("missing.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile("mine", SampleScenario(), 0o600))
	_, err = Load("mine")
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "write ./mine")
	sc, err := Load("./mine")
	require.NoError(t, err)
	require.Equal(t, SampleScenario(), sc.Source, "the run's folder keeps the file as it was")

	require.NoError(t, os.WriteFile("huge.yaml", bytes.Repeat([]byte("#\n"), maxFile), 0o600))
	_, err = Load("huge.yaml")
	var fe *FileError
	require.ErrorAs(t, err, &fe)
}

func TestPickStaysInTheRangeAndReachesItsEnds(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	r := Range{Min: time.Second, Max: time.Second + 3*time.Microsecond}
	seen := map[time.Duration]bool{}
	for range 200 {
		d := r.Pick(g)
		require.True(t, d >= r.Min && d <= r.Max, d)
		seen[d] = true
	}
	require.Len(t, seen, 4)
	require.Equal(t, time.Minute, Range{time.Minute, time.Minute}.Pick(g))
}

func FuzzParse(f *testing.F) {
	f.Add(SampleScenario())
	f.Add(SampleBench())
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, path := range files {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		check := func(err error) {
			var fe *FileError
			if err == nil {
				return
			}
			require.True(t, errors.As(err, &fe), "%T", err)
			for _, p := range fe.Problems {
				require.GreaterOrEqual(t, p.Line, 1, "%+v", p)
				require.NotEmpty(t, p.Text)
			}
		}
		sc, err := Parse("f.yaml", data)
		if check(err); err == nil {
			p := workload.Params{
				Run: [16]byte{1}, Profile: sc.Load.Profile,
				PayloadMin: sc.Load.PayloadMin, PayloadMax: sc.Load.PayloadMax, Window: sc.Load.Window,
			}
			require.NoError(t, p.Validate())
			require.NotEqual(t, sc.Cut.After == Range{}, sc.Cut.AfterAcks == 0, "one of the two")
			require.NotEmpty(t, sc.Benches)
		}
		b, err := ParseBench("f.yaml", data)
		if check(err); err == nil {
			require.NoError(t, checkDSN(b.Database.DSN))
			require.Equal(t, b.Outlet.Driver == DriverExec, len(b.Outlet.Lists["off"]) > 0)
		}
	})
}
