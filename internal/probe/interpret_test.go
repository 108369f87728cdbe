package probe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/hostcheck"
)

func codes(all []hostcheck.Finding) (out []string) {
	for _, f := range all {
		out = append(out, f.Code)
	}
	return out
}

func count(n uint64) *uint64 { return &n }

const (
	yes, no = hostcheck.Yes, hostcheck.No
)

func TestInterpretSettings(t *testing.T) {
	durable := map[string]string{"innodb_flush_log_at_trx_commit": "1", "version": "8.4.0"}
	with := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for k, v := range durable {
			m[k] = v
		}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	type want struct {
		code  string
		level hostcheck.Level
		text  string
	}
	for name, c := range map[string]struct {
		settings map[string]string
		want     want
		silent   bool // the drive is not spoken of
	}{
		"durable":                {durable, want{"flush_latency", hostcheck.OK, "wait for one flush at least"}, false},
		"flush at commit 0":      {with("innodb_flush_log_at_trx_commit", "0"), want{"not_durable", hostcheck.Critical, "innodb_flush_log_at_trx_commit=0 (want 1)"}, true},
		"flush at commit 2":      {with("innodb_flush_log_at_trx_commit", "2"), want{"not_durable", hostcheck.Critical, "says nothing of the drive"}, true},
		"flush at commit 3":      {with("innodb_flush_log_at_trx_commit", "3"), want{"not_durable", hostcheck.Critical, "=3"}, true},
		"MariaDB's 3":            {with("innodb_flush_log_at_trx_commit", "3", "version", "10.11.9-MariaDB"), want{"flush_latency", hostcheck.OK, ""}, false},
		"nosync":                 {with("innodb_flush_method", "nosync"), want{"not_durable", hostcheck.Critical, "nosync"}, true},
		"littlesync":             {with("innodb_flush_method", "littlesync"), want{"not_durable", hostcheck.Critical, "littlesync"}, true},
		"O_DIRECT_NO_FSYNC":      {with("innodb_flush_method", "O_DIRECT_NO_FSYNC"), want{"flush_latency", hostcheck.OK, ""}, false},
		"no redo log":            {with("innodb_redo_log_enabled", "OFF"), want{"not_durable", hostcheck.Critical, "innodb_redo_log_enabled=OFF"}, true},
		"debug_no_sync":          {with("debug_no_sync", "ON"), want{"not_durable", hostcheck.Critical, "debug_no_sync=ON"}, true},
		"PostgreSQL alone":       {map[string]string{"fsync": "on"}, want{"settings_unknown", hostcheck.Unknown, ""}, true},
		"a value of tomorrow":    {map[string]string{"fsync": "on", "synchronous_commit": "quantum"}, want{"settings_unknown", hostcheck.Unknown, ""}, true},
		"Aurora":                 {map[string]string{"fsync": "off", "synchronous_commit": "on", "plugpull.storage": "aurora"}, want{"settings_unknown", hostcheck.Unknown, ""}, true},
		"a standby":              {map[string]string{"fsync": "on", "synchronous_commit": "remote_write", "synchronous_standby_names": "b"}, want{"waits_for_others", hostcheck.Unknown, "synchronous_standby_names=b, synchronous_commit=remote_write"}, false},
		"a standby, local":       {map[string]string{"fsync": "on", "synchronous_commit": "local", "synchronous_standby_names": "b"}, want{"flush_latency", hostcheck.OK, ""}, false},
		"PostgreSQL":             {map[string]string{"fsync": "on", "synchronous_commit": "on"}, want{"flush_latency", hostcheck.OK, ""}, false},
		"fsync off":              {map[string]string{"fsync": "off"}, want{"not_durable", hostcheck.Critical, "fsync=off (want on)"}, true},
		"synchronous_commit off": {map[string]string{"fsync": "on", "synchronous_commit": "off"}, want{"not_durable", hostcheck.Critical, "synchronous_commit=off"}, true},
		"none":                   {nil, want{"settings_unknown", hostcheck.Unknown, "cannot be tied to the drive"}, true},
		"others":                 {map[string]string{"version": "8.4.0"}, want{"settings_unknown", hostcheck.Unknown, ""}, true},
		"binlog":                 {with("log_bin", "ON", "sync_binlog", "1"), want{"flush_latency", hostcheck.OK, "wait for two flushes"}, false},
		"binlog not flushed":     {with("log_bin", "ON", "sync_binlog", "0"), want{"binlog_not_flushed", hostcheck.Warning, "sync_binlog=0 (want 1)"}, false},
		"binlog flushed rarely":  {with("log_bin", "1", "sync_binlog", "100"), want{"binlog_not_flushed", hostcheck.Warning, "sync_binlog=100"}, false},
		"binlog not read":        {with("log_bin", "ON"), want{"binlog_not_flushed", hostcheck.Warning, "was not read"}, false},
		"binlog in InnoDB":       {with("log_bin", "ON", "sync_binlog", "0", "binlog_storage_engine", "innodb"), want{"flush_latency", hostcheck.OK, "one flush at least"}, false},
		"binlog off":             {with("log_bin", "OFF", "sync_binlog", "0"), want{"flush_latency", hostcheck.OK, "one flush at least"}, false},
		"semi-sync":              {with("rpl_semi_sync_master_enabled", "ON"), want{"waits_for_others", hostcheck.Unknown, "rpl_semi_sync_master_enabled=ON"}, false},
		"semi-sync, new name":    {with("rpl_semi_sync_source_enabled", "ON"), want{"waits_for_others", hostcheck.Unknown, ""}, false},
		"Galera":                 {with("wsrep_on", "ON"), want{"waits_for_others", hostcheck.Unknown, "wsrep_on=ON"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := steady(KindClient, 1000, 100*time.Microsecond)
			got := Interpret(r, Evidence{Settings: c.settings})
			assert.Equal(t, c.want.code, got[0].Code)
			assert.Equal(t, c.want.level, got[0].Level)
			assert.Contains(t, got[0].Text, c.want.text)
			assert.Equal(t, "rate_misleads", got[len(got)-1].Code, "it is always said")
			if c.silent {
				assert.Len(t, got, 2, "of the drive nothing is said")
			} else {
				assert.Contains(t, codes(got), "fast_unknown")
			}
			r.Settings = c.settings
			assert.Equal(t, got, Interpret(r, Evidence{}), "the result's own settings do as well")
		})
	}
}

func TestInterpretSpeed(t *testing.T) {
	const n = 1000
	durable := map[string]string{"innodb_flush_log_at_trx_commit": "1"}
	binlog := map[string]string{"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1"}
	dsync := map[string]string{"innodb_flush_log_at_trx_commit": "1", "innodb_flush_method": "O_DSYNC"}
	direct := map[string]string{"innodb_flush_log_at_trx_commit": "1", "innodb_log_file_write_through": "ON"}
	back := func(flushes uint64) []Layer {
		return []Layer{{Name: "dm-0", WriteCache: "write back", Flushes: count(0)}, {Name: "sda", WriteCache: "write back", Flushes: count(flushes)}}
	}
	sync := map[string]string{"fsync": "on", "synchronous_commit": "on", "wal_sync_method": "open_sync"}
	datasync := map[string]string{"fsync": "on", "synchronous_commit": "on", "wal_sync_method": "open_datasync"}
	fdatasync := map[string]string{"fsync": "on", "synchronous_commit": "on", "wal_sync_method": "fdatasync"}
	fua := []Layer{{Name: "nvme0n1", WriteCache: "write back", FUA: yes, Flushes: count(0)}}
	noFUA := []Layer{{Name: "sda", WriteCache: "write back", FUA: no, Flushes: count(0)}}
	through := []Layer{{Name: "sda", WriteCache: "write through", Flushes: count(0)}}
	disk := []Drive{{Name: "sda", Rotational: yes, RPM: 7200}}
	ssd := []Drive{{Name: "sda", Rotational: no}}
	withProtection := func(d []Drive, cache, protected hostcheck.Tri) []Drive {
		out := append([]Drive(nil), d...)
		for i := range out {
			out[i].Cache, out[i].Protected = cache, protected
		}
		return out
	}
	type f struct {
		level hostcheck.Level
		code  string
		text  string // a part of it
	}
	for name, c := range map[string]struct {
		latency  time.Duration
		settings map[string]string
		drives   []Drive
		layers   []Layer
		want     []f // beside flush_latency and rate_misleads
	}{
		"disk, one turn":              {8333 * time.Microsecond, durable, disk, back(n), []f{{hostcheck.OK, "disk_waited_for", "120 a second: half of the commits within 8.34 ms fit"}}},
		"disk, a little faster":       {6 * time.Millisecond, durable, disk, nil, []f{{hostcheck.OK, "disk_waited_for", "sda"}}},
		"disk with binlog":            {16666 * time.Microsecond, binlog, disk, nil, []f{{hostcheck.OK, "disk_waited_for", "half of that"}}},
		"disk outrun with binlog":     {8333 * time.Microsecond, binlog, disk, nil, []f{{hostcheck.OK, "disk_outrun", "half of that"}, {hostcheck.Unknown, "fast_unknown", ""}}},
		"disk outrun":                 {2 * time.Millisecond, durable, disk, nil, []f{{hostcheck.OK, "disk_outrun", "120 times a second; half of the commits within 2.00 ms"}, {hostcheck.Unknown, "fast_unknown", ""}}},
		"disk outrun, flushed":        {2 * time.Millisecond, durable, disk, back(n), []f{{hostcheck.OK, "disk_outrun", ""}, {hostcheck.Unknown, "fast_flushed", "reach sda"}}},
		"disk outrun, protected":      {200 * time.Microsecond, durable, withProtection(disk, no, yes), back(n), []f{{hostcheck.OK, "disk_outrun", ""}, {hostcheck.OK, "fast_protected", ""}}},
		"disk outrun, unprotected":    {2 * time.Millisecond, durable, withProtection(disk, yes, no), back(n), []f{{hostcheck.OK, "disk_outrun", ""}, {hostcheck.Warning, "fast_unprotected", ""}}},
		"disk of unknown speed":       {3 * time.Millisecond, durable, []Drive{{Name: "sdb", Rotational: yes}}, nil, []f{{hostcheck.OK, "disk_waited_for", "at most 15000"}}},
		"disk and SSD":                {2 * time.Millisecond, durable, append(ssd, disk...), nil, []f{{hostcheck.OK, "medium_waited_for", "if a controller's"}}},
		"perhaps a disk":              {2 * time.Millisecond, durable, []Drive{{Name: "sda"}}, nil, []f{{hostcheck.OK, "medium_waited_for", "if a controller's"}}},
		"hundreds, unknown drive":     {2 * time.Millisecond, durable, nil, nil, []f{{hostcheck.OK, "medium_waited_for", "if a controller's"}}},
		"hundreds, SSD":               {2 * time.Millisecond, durable, ssd, back(n), []f{{hostcheck.OK, "medium_waited_for", "on an SSD"}}},
		"about a thousand":            {time.Millisecond, durable, ssd, back(n), []f{{hostcheck.Unknown, "between", ""}}},
		"a thousand by the binlog":    {2 * time.Millisecond, binlog, nil, nil, []f{{hostcheck.Unknown, "between", ""}}},
		"thousands":                   {100 * time.Microsecond, durable, nil, nil, []f{{hostcheck.Unknown, "fast_unknown", "three explanations"}}},
		"thousands, SSD":              {100 * time.Microsecond, durable, ssd, nil, []f{{hostcheck.Unknown, "fast_unknown", ""}}},
		"thousands, flushed":          {100 * time.Microsecond, durable, ssd, back(2 * n), []f{{hostcheck.Unknown, "fast_flushed", "cannot tell them apart"}}},
		"thousands, protected":        {100 * time.Microsecond, durable, withProtection(ssd, yes, yes), back(n), []f{{hostcheck.OK, "fast_protected", ""}}},
		"thousands, one protected":    {100 * time.Microsecond, durable, append(withProtection(ssd, yes, yes), ssd...), back(n), []f{{hostcheck.Unknown, "fast_flushed", ""}}},
		"thousands, unprotected":      {100 * time.Microsecond, durable, withProtection(ssd, yes, no), back(n), []f{{hostcheck.Warning, "fast_unprotected", "cut its power"}}},
		"write through":               {100 * time.Microsecond, durable, ssd, through, []f{{hostcheck.Unknown, "fast_write_through", "sda"}}},
		"write through, protected":    {100 * time.Microsecond, durable, withProtection(ssd, yes, yes), through, []f{{hostcheck.OK, "fast_protected", ""}}},
		"write through, cache on":     {100 * time.Microsecond, durable, withProtection(ssd, yes, no), through, []f{{hostcheck.Critical, "cache_not_flushed", "write through"}}},
		"write through, cache off":    {100 * time.Microsecond, durable, withProtection(ssd, no, no), through, []f{{hostcheck.Unknown, "fast_write_through", ""}}},
		"swallowed":                   {100 * time.Microsecond, durable, ssd, back(0), []f{{hostcheck.Critical, "flush_swallowed", "no flush reached sda while 1,000"}}},
		"swallowed, a few of others":  {100 * time.Microsecond, durable, ssd, back(n / 200), []f{{hostcheck.Critical, "flush_swallowed", ""}}},
		"swallowed, protected":        {100 * time.Microsecond, durable, withProtection(ssd, yes, yes), back(0), []f{{hostcheck.Warning, "flush_swallowed", ""}}},
		"swallowed, slow":             {8333 * time.Microsecond, durable, disk, back(0), []f{{hostcheck.Critical, "flush_swallowed", ""}}},
		"some swallowed":              {100 * time.Microsecond, durable, ssd, back(n / 5), []f{{hostcheck.Warning, "flush_partial", "0.20 flushes"}}},
		"O_DSYNC, FUA":                {100 * time.Microsecond, dsync, ssd, fua, []f{{hostcheck.Unknown, "flushed_by_write", "nvme0n1"}}},
		"O_DSYNC, FUA not known":      {100 * time.Microsecond, direct, ssd, back(0), []f{{hostcheck.Unknown, "flushed_by_write", ""}}},
		"O_DSYNC, no FUA":             {100 * time.Microsecond, dsync, ssd, noFUA, []f{{hostcheck.Critical, "flush_swallowed", ""}}},
		"PostgreSQL, open_sync":       {100 * time.Microsecond, sync, ssd, fua, []f{{hostcheck.Unknown, "flushed_by_write", "nvme0n1"}}},
		"PostgreSQL, open_datasync":   {100 * time.Microsecond, datasync, ssd, back(0), []f{{hostcheck.Unknown, "flushed_by_write", ""}}},
		"PostgreSQL, fdatasync":       {100 * time.Microsecond, fdatasync, ssd, back(0), []f{{hostcheck.Critical, "flush_swallowed", ""}}},
		"fdatasync, FUA":              {100 * time.Microsecond, durable, ssd, fua, []f{{hostcheck.Critical, "flush_swallowed", ""}}},
		"device mapper counts none":   {100 * time.Microsecond, durable, ssd, back(0)[:1], []f{{hostcheck.Unknown, "fast_unknown", ""}}},
		"cache of the queue unknown":  {100 * time.Microsecond, durable, ssd, []Layer{{Name: "sda", Flushes: count(0)}}, []f{{hostcheck.Unknown, "fast_unknown", ""}}},
		"not counted on write back":   {100 * time.Microsecond, durable, ssd, []Layer{{Name: "sda", WriteCache: "write back"}}, []f{{hostcheck.Unknown, "fast_unknown", ""}}},
		"write through above, counts": {100 * time.Microsecond, durable, ssd, []Layer{{Name: "sda", WriteCache: "write through", Flushes: count(n)}}, []f{{hostcheck.Unknown, "fast_flushed", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := steady(KindInServer, n, c.latency)
			got := Interpret(r, Evidence{Settings: c.settings, Drives: c.drives, Layers: c.layers})
			require.Len(t, got, len(c.want)+2, "%v", codes(got))
			assert.Equal(t, "flush_latency", got[0].Code)
			assert.Equal(t, "rate_misleads", got[len(got)-1].Code)
			for k, w := range c.want {
				assert.Equal(t, w.code, got[k+1].Code)
				assert.Equal(t, w.level, got[k+1].Level)
				assert.Contains(t, got[k+1].Text, w.text)
			}
			for _, x := range got {
				assert.NotContains(t, x.Text, "%!")
				assert.NotRegexp(t, `\.$`, x.Text)
			}
		})
	}
}

func TestInterpretFlushLatency(t *testing.T) {
	layers := []Layer{{Name: "loop0", WriteCache: "write back", Flushes: count(2000)}}
	durable := map[string]string{"innodb_flush_log_at_trx_commit": "1"}
	eight := 8 * time.Millisecond
	for name, c := range map[string]struct {
		kind Kind
		e    Evidence
		want string
	}{
		"counted": {KindInServer, Evidence{Settings: durable, Layers: layers},
			"half of the commits take at most 8.00 ms; the settings let it wait for one flush at least, and 2 flushes a commit reached loop0: its flush latency is at most about 8.00 ms"},
		"asked for": {KindInServer, Evidence{Settings: durable}, "wait for one flush at least: if the flushes reach a drive, its flush latency is at most about 8.00 ms"},
		"binlog": {KindInServer, Evidence{Settings: map[string]string{"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1"}},
			"two flushes, of the redo log and of the binary log: if the flushes reach a drive, its flush latency is at most about 4.00 ms"},
		"client": {KindClient, Evidence{Settings: durable}, "8.00 ms, the network and the server's own work included; the"},
		"folder": {KindFolder, Evidence{}, "; each is one fdatasync: if"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Interpret(steady(c.kind, 1000, eight), c.e)
			assert.Equal(t, "flush_latency", got[0].Code)
			assert.Contains(t, got[0].Text, c.want)
		})
	}
}

// Some stalls do not make a fast stack a slow one.
func TestInterpretUneven(t *testing.T) {
	var l []time.Duration
	for k := range 1000 {
		l = append(l, 300*time.Microsecond)
		if k%100 == 0 {
			l = append(l, 500*time.Millisecond)
		}
	}
	r := made(KindFolder, l...)
	require.Less(t, r.Rate(), 200.0)
	got := Interpret(r, Evidence{})
	assert.Equal(t, []string{"flush_latency", "uneven", "fast_unknown", "rate_misleads"}, codes(got))
	assert.Contains(t, got[1].Text, "half of them take at most 300 µs, and yet there were only 19")
}

func TestInterpretTooLittle(t *testing.T) {
	assert.Equal(t, []string{"no_commits"}, codes(Interpret(made(KindClient), Evidence{})))
	assert.Equal(t, "few_commits", Interpret(steady(KindFolder, few-1, time.Millisecond), Evidence{})[0].Code)
	assert.NotContains(t, codes(Interpret(steady(KindFolder, few, time.Millisecond), Evidence{})), "few_commits")
}

func TestInterpretNetwork(t *testing.T) {
	outside, inside := steady(KindClient, 1000, 400*time.Microsecond), steady(KindInServer, 1000, 100*time.Microsecond)
	share := func(r, other *Result) string {
		for _, f := range Interpret(r, Evidence{Other: other}) {
			if f.Code == "network_share" {
				assert.Equal(t, hostcheck.OK, f.Level)
				return f.Text
			}
		}
		return ""
	}
	want := "the loop inside the server makes 10,000 commits/s and the client 2,500: 75 % of the client's time, about 300 µs a commit, is the network and the client"
	assert.Equal(t, want, share(outside, inside))
	assert.Equal(t, want, share(inside, outside), "the order does not matter")
	assert.Contains(t, share(outside, steady(KindInServer, 1000, 410*time.Microsecond)), "no faster")
	assert.Empty(t, share(outside, outside))
	assert.Empty(t, share(steady(KindFolder, 1000, time.Millisecond), inside))
	assert.Empty(t, share(outside, made(KindInServer)))
}

func TestInterpretBaseline(t *testing.T) {
	now, base := steady(KindFolder, 20_000, 100*time.Microsecond), steady(KindFolder, 2000, time.Millisecond)
	text := func(b *Result) hostcheck.Finding {
		got := Interpret(now, Evidence{Baseline: b})
		return got[len(got)-2]
	}
	assert.Contains(t, text(base).Text, "10 times as fast as the baseline")
	assert.Equal(t, hostcheck.Unknown, text(made(KindFolder)).Level)
}
