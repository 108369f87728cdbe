package sqlitevfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const deviceSize = offExtents + 2*files*(16<<10)

func format(t testing.TB) (*device, *FS) {
	t.Helper()
	d := newDevice(deviceSize)
	require.NoError(t, Format(d))
	return d, mount(t, d)
}

func mount(t testing.TB, d *device) *FS {
	t.Helper()
	fs, err := Mount(d)
	require.NoError(t, err)
	return fs
}

func file(t testing.TB, fs *FS, name string) *File {
	t.Helper()
	f, err := fs.File(name)
	require.NoError(t, err)
	return f
}

func put(t testing.TB, f *File, text string, off int64) {
	t.Helper()
	_, err := f.WriteAt([]byte(text), off)
	require.NoError(t, err)
}

// contents returns what a file holds; absent is told by the second value.
func contents(t testing.TB, fs *FS, name string) (string, bool) {
	t.Helper()
	if !fs.Exists(name) {
		return "", false
	}
	f := file(t, fs, name)
	b := make([]byte, f.Size())
	_, err := f.ReadAt(b, 0)
	require.NoError(t, err)
	_, err = f.ReadAt(make([]byte, 1), f.Size())
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, f.Close())
	return string(b), true
}

// TestVolatility is the table of what a cut may do to a change that was or was
// not synced: a file "a" with durable contents "old" is there before.
func TestVolatility(t *testing.T) {
	const absent = "absent"
	for _, c := range []struct {
		name      string
		change    func(t *testing.T, fs *FS)
		none, all string // what "a" (or "b") holds after a cut that leaves nothing or everything
		file      string
	}{
		{"create", func(t *testing.T, fs *FS) { put(t, file(t, fs, "b"), "new", 0) }, absent, absent, "b"},
		{"create, synced", func(t *testing.T, fs *FS) {
			f := file(t, fs, "b")
			put(t, f, "new", 0)
			require.NoError(t, f.Sync())
		}, "new", "new", "b"},
		{"create, another file synced", func(t *testing.T, fs *FS) {
			put(t, file(t, fs, "b"), "new", 0)
			require.NoError(t, file(t, fs, "a").Sync())
		}, absent, absent, "b"},
		{"overwrite", func(t *testing.T, fs *FS) { put(t, file(t, fs, "a"), "new", 0) }, "old", "new", "a"},
		{"overwrite, synced", func(t *testing.T, fs *FS) {
			f := file(t, fs, "a")
			put(t, f, "new", 0)
			require.NoError(t, f.Sync())
		}, "new", "new", "a"},
		{"overwrite, another file synced", func(t *testing.T, fs *FS) {
			put(t, file(t, fs, "a"), "new", 0)
			require.NoError(t, file(t, fs, "b").Sync())
		}, "new", "new", "a"},
		{"extend", func(t *testing.T, fs *FS) { put(t, file(t, fs, "a"), "er", 3) }, "old", "old", "a"},
		{"extend, synced", func(t *testing.T, fs *FS) {
			f := file(t, fs, "a")
			put(t, f, "er", 3)
			require.NoError(t, f.Sync())
		}, "older", "older", "a"},
		{"truncate", func(t *testing.T, fs *FS) { require.NoError(t, file(t, fs, "a").Truncate(1)) }, "old", "old", "a"},
		{"truncate, synced", func(t *testing.T, fs *FS) {
			f := file(t, fs, "a")
			require.NoError(t, f.Truncate(1))
			require.NoError(t, f.Sync())
		}, "o", "o", "a"},
		{"truncate and extend, synced", func(t *testing.T, fs *FS) {
			f := file(t, fs, "a")
			require.NoError(t, f.Truncate(1))
			require.NoError(t, f.Truncate(3))
			require.NoError(t, f.Sync())
		}, "o\x00\x00", "o\x00\x00", "a"},
		{"truncate to nothing and write", func(t *testing.T, fs *FS) {
			f := file(t, fs, "a")
			require.NoError(t, f.Truncate(0))
			put(t, f, "N", 0)
		}, "old", "old", "a"},
		{"truncate to nothing, write, another file synced", func(t *testing.T, fs *FS) {
			f := file(t, fs, "a")
			require.NoError(t, f.Truncate(0))
			put(t, f, "N", 0)
			require.NoError(t, file(t, fs, "b").Sync())
		}, "old", "old", "a"},
		{"truncate to nothing and write, synced, twice", func(t *testing.T, fs *FS) {
			f := file(t, fs, "a")
			for _, text := range []string{"first", "second"} {
				require.NoError(t, f.Truncate(0))
				put(t, f, "lost", 0)
				require.NoError(t, f.Truncate(0))
				put(t, f, text, 0)
				require.NoError(t, f.Sync())
			}
		}, "second", "second", "a"},
		{"delete", func(t *testing.T, fs *FS) { require.NoError(t, fs.Delete("a", false)) }, "old", absent, "a"},
		{"delete, directory synced", func(t *testing.T, fs *FS) { require.NoError(t, fs.Delete("a", true)) }, absent, absent, "a"},
		{"delete, another file synced", func(t *testing.T, fs *FS) {
			require.NoError(t, fs.Delete("a", false))
			require.NoError(t, file(t, fs, "b").Sync())
		}, absent, absent, "a"},
		{"delete and create", func(t *testing.T, fs *FS) {
			require.NoError(t, fs.Delete("a", false))
			put(t, file(t, fs, "a"), "new", 0)
		}, "old", absent, "a"},
		{"everything, all synced", func(t *testing.T, fs *FS) {
			require.NoError(t, fs.Delete("a", false))
			put(t, file(t, fs, "b"), "new", 0)
			require.NoError(t, fs.Sync())
			put(t, file(t, fs, "b"), "more", 3)
		}, "new", "new", "b"},
		{"delete and create, synced", func(t *testing.T, fs *FS) {
			require.NoError(t, fs.Delete("a", false))
			f := file(t, fs, "a")
			put(t, f, "new", 0)
			require.NoError(t, f.Sync())
		}, "new", "new", "a"},
		{"create, synced, delete", func(t *testing.T, fs *FS) {
			f := file(t, fs, "b")
			put(t, f, "new", 0)
			require.NoError(t, f.Sync())
			require.NoError(t, fs.Delete("b", false))
		}, "new", absent, "b"},
	} {
		for _, cut := range []struct {
			name string
			keep keep
			want string
		}{{"none", none, c.none}, {"all", all, c.all}} {
			t.Run(c.name+"/"+cut.name, func(t *testing.T) {
				d, fs := format(t)
				f := file(t, fs, "a")
				put(t, f, "old", 0)
				require.NoError(t, f.Sync())
				require.NoError(t, f.Close())
				c.change(t, fs)
				got, ok := contents(t, mount(t, d.cut(cut.keep)), c.file)
				if !ok {
					got = absent
				}
				assert.Equal(t, cut.want, got)
			})
		}
	}
}

// TestSizeNeverWithoutData cuts at every request of a Sync of a file that grows,
// in an extent that is full of an older file: neither garbage nor zeros may show.
func TestSizeNeverWithoutData(t *testing.T) {
	for at := 1; at < 12; at++ {
		for seed := range uint64(50) {
			d, fs := format(t)
			f := file(t, fs, "old")
			put(t, f, string(bytes.Repeat([]byte{'G'}, 8000)), 0)
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())
			require.NoError(t, fs.Delete("old", true))

			d.ops, d.trap = 0, at
			f = file(t, fs, "new")
			for i := range 3 {
				if _, err := f.WriteAt(bytes.Repeat([]byte{'a' + byte(i)}, 1500), int64(i)*1500); err != nil {
					break
				}
				if f.Sync() != nil {
					break
				}
			}
			got, _ := contents(t, mount(t, d.cut(some(rand.New(rand.NewPCG(seed, uint64(at)))))), "new")
			want := ""
			for i := range len(got) / 1500 {
				want += string(bytes.Repeat([]byte{'a' + byte(i)}, 1500))
			}
			require.Equal(t, want, got, "cut at request %d, seed %d", at, seed)
		}
	}
}

// TestRoomIsNotUsedTwice: until a deletion is durable, nothing else is written
// where the file was.
func TestRoomIsNotUsedTwice(t *testing.T) {
	d, fs := format(t)
	f := file(t, fs, "journal")
	put(t, f, "first", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	require.NoError(t, fs.Delete("journal", false))
	put(t, file(t, fs, "journal"), "OTHER", 0)
	for s := range d.pending {
		if s < offExtents {
			delete(d.pending, s) // the deletion did not survive, the data did
		}
	}
	got, _ := contents(t, mount(t, d.cut(all)), "journal")
	assert.Equal(t, "first", got)
}

// TestDeletionsWaitForRoom: files that are made and deleted for ever, each
// synced once, never fill the directory, and neither do those never synced.
func TestDeletionsWaitForRoom(t *testing.T) {
	_, fs := format(t)
	for i := range 5 * files {
		f := file(t, fs, fmt.Sprintf("f%d", i))
		if i%3 > 0 {
			require.NoError(t, f.Sync())
		}
		require.NoError(t, f.Close())
		require.NoError(t, fs.Delete(fmt.Sprintf("f%d", i), false))
	}
	for i := range files {
		file(t, fs, fmt.Sprintf("g%d", i))
	}
	_, err := fs.File("one-more")
	assert.ErrorIs(t, err, ErrFull)
}

// TestModel holds random operations, with cuts that leave nothing or everything
// synced, against a map of byte slices.
func TestModel(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		d, fs := format(t)
		now := map[string][]byte{} // as read now
		for step := range 300 {
			name := string('a' + byte(r.IntN(5)))
			switch r.IntN(6) {
			case 0, 1, 2:
				f := file(t, fs, name)
				off, n := r.IntN(3000), 1+r.IntN(2000)
				b := bytes.Repeat([]byte{byte(step)}, n)
				_, err := f.WriteAt(b, int64(off))
				require.NoError(t, err)
				now[name] = append(now[name], make([]byte, max(0, off+n-len(now[name])))...)
				copy(now[name][off:], b)
				require.NoError(t, f.Close())
			case 3:
				f := file(t, fs, name)
				n := r.IntN(5000)
				require.NoError(t, f.Truncate(int64(n)))
				now[name] = append(now[name][:min(n, len(now[name]))], make([]byte, max(0, n-len(now[name])))...)
				require.NoError(t, f.Close())
			case 4:
				_, there := now[name]
				err := fs.Delete(name, r.IntN(2) == 0)
				require.Equal(t, there, err == nil, "%v", err)
				delete(now, name)
			case 5:
				if r.IntN(4) > 0 {
					break
				}
				require.NoError(t, fs.Sync())
				d = d.cut(some(r))
				fs = mount(t, d)
			}
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				got, ok := contents(t, fs, name)
				want, there := now[name]
				require.Equal(t, there, ok, "seed %d, step %d: %s exists", seed, step, name)
				require.Equal(t, string(want), got, "seed %d, step %d: %s", seed, step, name)
			}
		}
	}
}

func TestEdges(t *testing.T) {
	d, fs := format(t)
	f := file(t, fs, "a")
	put(t, f, "x", 0)
	_, err := f.WriteAt(make([]byte, 2), fs.extent-1)
	assert.ErrorIs(t, err, ErrFull)
	assert.EqualValues(t, 1, f.Size(), "a write that does not fit writes nothing")
	assert.ErrorIs(t, f.Truncate(fs.extent+1), ErrFull)
	_, err = f.WriteAt([]byte("z"), fs.extent-1)
	assert.NoError(t, err)
	_, err = f.WriteAt(nil, 1<<62)
	assert.Error(t, err)
	_, err = f.ReadAt(make([]byte, 1), -1)
	assert.Error(t, err)
	for _, name := range []string{"", "a/b", "é", string(bytes.Repeat([]byte{'n'}, maxName+1))} {
		_, err := fs.File(name)
		assert.Error(t, err, "%q", name)
	}
	assert.ErrorIs(t, fs.Delete("nothing", true), ErrNotExist)

	// A file that is open keeps its contents when it is deleted.
	require.NoError(t, fs.Delete("a", true))
	b := make([]byte, 1)
	_, err = f.ReadAt(b, 0)
	assert.NoError(t, err)
	assert.Equal(t, "x", string(b))
	put(t, file(t, fs, "a"), "y", 0)
	_, err = f.ReadAt(b, 0)
	assert.NoError(t, err)
	assert.Equal(t, "x", string(b))
	assert.NoError(t, f.Sync())

	d.cut(none)
	_, err = f.WriteAt(b, 0)
	assert.ErrorIs(t, err, errPowerOff)
	_, err = f.ReadAt(b, 0)
	assert.ErrorIs(t, err, errPowerOff)
	assert.ErrorIs(t, f.Sync(), errPowerOff)
	assert.ErrorIs(t, fs.Delete("a", true), errPowerOff)
	_, err = Mount(d)
	assert.ErrorIs(t, err, errPowerOff)
	assert.NotErrorIs(t, err, ErrDamaged)
}

// TestDamagedDirectory: one bad copy is no damage, two are.
func TestDamagedDirectory(t *testing.T) {
	d, fs := format(t)
	f := file(t, fs, "a")
	put(t, f, "old", 0)
	require.NoError(t, f.Sync())
	put(t, f, "er", 3)
	require.NoError(t, f.Sync())
	newest, older := entryAt(0, fs.slots[0].home), entryAt(0, 1-fs.slots[0].home)

	d.damage(newest + 100)
	got, _ := contents(t, mount(t, d), "a")
	assert.Equal(t, "old", got, "the older copy stands")
	d.damage(older + 500)
	_, err := Mount(d)
	assert.ErrorIs(t, err, ErrDamaged)

	_, err = Mount(newDevice(deviceSize))
	assert.ErrorIs(t, err, ErrDamaged)
	_, err = Mount(newDevice(sector))
	assert.ErrorIs(t, err, ErrDamaged)
	assert.Error(t, Format(newDevice(offExtents)))
}

// TestTwoOfOneName is what only a lying drive leaves: the newer file stands, and
// the older does not come back when the newer is deleted.
func TestTwoOfOneName(t *testing.T) {
	d, _ := format(t)
	for i, size := range []int64{0, 1} {
		var b [sector]byte
		(&entry{exists: true, seq: 10 + uint64(i), size: size, name: "a"}).encode(b[:], i)
		d.set(b[:], entryAt(i, 1))
	}
	fs := mount(t, d)
	got, _ := contents(t, fs, "a")
	assert.Equal(t, "\x00", got)
	require.NoError(t, fs.Delete("a", true))
	assert.False(t, mount(t, d.cut(none)).Exists("a"))
}

func FuzzDecodeEntry(f *testing.F) {
	var b [sector]byte
	(&entry{exists: true, seq: 3, size: 77, name: "test.db-journal"}).encode(b[:], 5)
	f.Add(b[:offCRC], true)
	(&entry{seq: 1}).encode(b[:], 5)
	f.Add(b[:offCRC], true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, data []byte, fix bool) {
		b := make([]byte, sector)
		copy(b, data)
		if fix {
			seal(b)
		}
		e, err := decodeEntry(b, 5, 1<<20)
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		var again [sector]byte
		e.encode(again[:], 5)
		require.Equal(t, b, again[:], "accepted only as it is written")
	})
}

func FuzzMount(f *testing.F) {
	d := newDevice(deviceSize)
	if err := Format(d); err != nil {
		f.Fatal(err)
	}
	head := make([]byte, offExtents)
	if _, err := d.ReadAt(head, 0); err != nil {
		f.Fatal(err)
	}
	f.Add(head, uint16(0))
	f.Add(head, uint16(8))
	f.Add([]byte("nonsense"), uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, entries uint16) {
		d := newDevice(deviceSize)
		head := make([]byte, offExtents)
		copy(head, data)
		for i := range files { // reach beyond the checksums
			if entries&(1<<i) != 0 {
				at := entryAt(i, 0)
				seal(head[at : at+sector])
			}
		}
		d.set(head, 0)
		fs, err := Mount(d)
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		file, err := fs.File("a")
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
			return
		}
		_, err = file.WriteAt([]byte("x"), 0)
		require.NoError(t, errors.Join(err, file.Sync()))
		require.True(t, mount(t, d.cut(none)).Exists("a"))
	})
}
