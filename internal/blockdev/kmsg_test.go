package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestKernelLog(t *testing.T) {
	needRoot(t)
	say := func(text string) {
		require.NoError(t, os.WriteFile("/dev/kmsg", []byte("<6>"+text+"\n"), 0))
	}
	say("plugpull test: before loop987654")
	k, err := OpenKernelLog()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	say("plugpull test (loop987654): first")
	say("plugpull test: loop9876543 is another")
	said, lost, err := k.Read("loop987654")
	require.NoError(t, err)
	require.False(t, lost)
	require.Len(t, said, 1)
	require.Equal(t, "plugpull test (loop987654): first", said[0].Text)
	require.Equal(t, 6, said[0].Level)
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	require.InDelta(t, time.Duration(now.Nano()).Seconds(), said[0].Time.Seconds(), limit.Seconds())
	said, _, err = k.Read("loop987654")
	require.NoError(t, err)
	require.Empty(t, said, "only what is new")
	require.NoError(t, k.Close())
	_, _, err = k.Read()
	require.ErrorIs(t, err, fs.ErrClosed)
}

// A kernel whose log has run over says so once and goes on with the oldest message it has.
func TestKernelLogReading(t *testing.T) {
	records := func(answers ...any) *KernelLog {
		return &KernelLog{read: func(b []byte) (int, error) {
			if len(answers) == 0 {
				return 0, unix.EAGAIN
			}
			a := answers[0]
			answers = answers[1:]
			if err, ok := a.(error); ok {
				return -1, err
			}
			return copy(b, a.(string)), nil
		}}
	}
	said, lost, err := records(unix.EPIPE, unix.EINTR,
		"30,7,1500000,-;systemd[1]: hello; again\n", "3,8,1600000,-,caller=T1;I/O error, dev loop1\n SUBSYSTEM=block\n DEVICE=b7:1\n").Read()
	require.NoError(t, err)
	require.True(t, lost)
	require.Equal(t, []Message{
		{Level: 6, Time: 1500 * time.Millisecond, Text: "systemd[1]: hello; again"},
		{Level: 3, Time: 1600 * time.Millisecond, Text: "I/O error, dev loop1"},
	}, said)
	for _, bad := range []string{"", "no head", "6,1;x", "6,x,y,-;x", "x,1,1,-;x", "6,1,,-;x"} {
		_, err := parseMessage(bad)
		require.Error(t, err, "%q", bad)
	}
	_, _, err = records(unix.EIO).Read()
	require.ErrorIs(t, err, unix.EIO)
	none := (*KernelLog)(nil)
	require.NoError(t, none.Close())
	require.Empty(t, none.texts("loop1"))
}

func TestMentions(t *testing.T) {
	for _, test := range []struct {
		text string
		want bool
	}{
		{"EXT4-fs (loop1): mounted", true},
		{"XFS (loop10): mounted, not loop1p2, but loop1", true},
		{"XFS (loop10): mounted", false},
		{"floop1", false},
		{"loop1", true},
		{"", false},
	} {
		require.Equal(t, test.want, mentions(test.text, "loop1"), test.text)
	}
	require.False(t, mentions("text", ""))
}

func TestParseMountInfo(t *testing.T) {
	text := "36 35 98:0 / /mnt/a\\040b\\134x rw,noatime master:1 propagate_from:2 - ext3 /dev/root\\0111 rw,errors=continue\n" +
		"37 36 0:5 /sub /mnt/a\\040b\\134x ro - btrfs none rw\n"
	mounts, err := parseMountInfo(text)
	require.NoError(t, err)
	require.Equal(t, &MountInfo{ID: 36, Parent: 35, Major: 98, Dir: `/mnt/a b\x`, Type: "ext3", Source: "/dev/root\t1",
		Options: []string{"rw", "noatime"}, FSOptions: []string{"rw", "errors=continue"}}, mounts[0])
	top, err := topmost(mounts, `/mnt/a b\x`)
	require.NoError(t, err)
	require.Equal(t, 37, top.ID)
	_, err = topmost(mounts, "/mnt")
	require.ErrorIs(t, err, ErrNotMounted)
	for _, bad := range []string{"x", "36 35 98:0 / /mnt rw ext3 - /dev/root", "a b c / /mnt rw - ext3 /dev/root rw"} {
		_, err := parseMountInfo(bad + "\n")
		require.Error(t, err, bad)
	}
	for in, want := range map[string]string{`a\`: `a\`, `\04`: `\04`, `\999x`: `\999x`, `\043\043`: "##"} {
		require.Equal(t, want, unescape(in))
	}
}

func TestMountErrorText(t *testing.T) {
	err := error(&MountError{Device: "/dev/loop1", Dir: "/mnt", FS: FS{"xfs", []string{"nobarrier"}}, Step: "fsconfig nobarrier",
		Errno: unix.EINVAL, Reasons: []string{"xfs: Unknown parameter 'nobarrier'"}, Log: []string{"XFS (loop1): no"}})
	require.EqualError(t, err, "mount /dev/loop1 on /mnt as xfs with nobarrier: fsconfig nobarrier: invalid argument: "+
		"xfs: Unknown parameter 'nobarrier'; XFS (loop1): no")
	require.True(t, errors.Is(fmt.Errorf("x: %w", err), unix.EINVAL))
}
