package raid

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"time"

	"plugpull/internal/hostcheck"
)

// keyValue splits a line at its first " :" that ends a key, or else at its first colon; keys may have colons
// of their own, as in "Reported Channel,Device(T:L)   : 0,0". The key is in small letters with single spaces.
// The value keeps the spaces that follow the one after the colon, for fields of fixed width.
func keyValue(line string) (key, value string, ok bool) {
	line = strings.TrimRight(line, " \t\r") + " "
	i := strings.Index(line, " : ")
	if i >= 0 {
		i++
	} else if i = strings.IndexByte(line, ':'); i < 0 {
		return "", "", false
	}
	return squeeze(line[:i]), strings.TrimRight(strings.TrimPrefix(line[i+1:], " "), " "), true
}

// squeeze returns the text in small letters with single spaces.
func squeeze(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

func lines(out []byte) []string {
	var list []string
	for line := range bytes.Lines(out) {
		list = append(list, string(bytes.TrimRight(line, "\r\n")))
	}
	return list
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// silent reports the ways in which tools say that they say nothing.
func silent(value string) bool {
	switch squeeze(value) {
	case "", "-", "n/a", "na", "none", "unknown", "not applicable", "not available", "not supported":
		return true
	}
	return false
}

// yesNo reads Yes and No, and True and False.
func yesNo(value string) hostcheck.Tri {
	switch squeeze(value) {
	case "yes", "true":
		return hostcheck.Yes
	case "no", "false":
		return hostcheck.No
	}
	return hostcheck.NotKnown
}

// onOff reads words for a write cache: "Enabled (write-back)", "Disable", "On", "dsbl". "Default", "Disk's
// Default", "Unchanged" and whatever else are not known.
func onOff(value string) hostcheck.Tri {
	word, _, _ := strings.Cut(squeeze(value), " ")
	switch word {
	case "enabled", "enable", "on", "enbl":
		return hostcheck.Yes
	case "disabled", "disable", "off", "dsbl":
		return hostcheck.No
	}
	return hostcheck.NotKnown
}

var number = regexp.MustCompile(`^[-+]?[0-9]+(\.[0-9]+)?`)

// leadingNumber reads the number that a value begins with: "97 %", "26 C", "0x97" is none.
func leadingNumber(value string) (float64, bool) {
	value = strings.TrimSpace(value)
	found := number.FindString(value)
	rest := strings.TrimPrefix(value, found)
	if found == "" || strings.HasPrefix(rest, "x") || strings.HasPrefix(rest, "/") {
		return 0, false
	}
	f, err := strconv.ParseFloat(found, 64)
	return f, err == nil
}

var spans = regexp.MustCompile(`([0-9]+)\s*(day|hour|min|sec)`)

// longest keeps products of spans far from overflowing; ten years of hold-up time say nothing more.
const longest = 10 * 365 * 24 * time.Hour

// duration reads "3 days, 1 hours, 11 minutes" and "48 hours +".
func duration(value string) (time.Duration, bool) {
	unit := map[string]time.Duration{"day": 24 * time.Hour, "hour": time.Hour, "min": time.Minute, "sec": time.Second}
	var sum time.Duration
	found := spans.FindAllStringSubmatch(strings.ToLower(value), -1)
	for _, m := range found {
		n, err := strconv.Atoi(m[1])
		if err != nil || time.Duration(n) > longest/unit[m[2]] {
			return 0, false
		}
		sum += time.Duration(n) * unit[m[2]]
	}
	return sum, len(found) > 0 && sum <= longest
}

// devicePath reads a path of the system, and nothing of what a tool may write behind it.
func devicePath(value string) string {
	if f := strings.Fields(value); len(f) > 0 && strings.HasPrefix(f[0], "/dev/") {
		return f[0]
	}
	return ""
}
