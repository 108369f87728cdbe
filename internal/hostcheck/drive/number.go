package drive

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// most is the most that a counter of power losses or cycles may say: a drive that is switched every minute
// for 19 years. Attributes that pack several numbers into one say more.
const most = 10_000_000

// number is a number of JSON that versions write as integer, as float, as text in decimal or hexadecimal,
// or as an object with a value. What is not a whole number that is at least 0 is none, and no error: one odd
// field must not hide the others.
type number struct {
	value uint64
	known bool
}

func (n *number) UnmarshalJSON(b []byte) error {
	*n = number{}
	text := strings.TrimSpace(string(b))
	if strings.HasPrefix(text, "{") {
		var object struct{ Value json.RawMessage }
		if json.Unmarshal(b, &object) == nil && !strings.HasPrefix(strings.TrimSpace(string(object.Value)), "{") {
			return n.UnmarshalJSON(object.Value)
		}
		return nil
	}
	if quoted, err := strconv.Unquote(text); err == nil {
		text = strings.TrimSpace(quoted)
	}
	if v, err := strconv.ParseUint(text, 10, 64); err == nil {
		*n = number{v, true}
	} else if hex, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
		if v, err := strconv.ParseUint(hex, 16, 64); err == nil {
			*n = number{v, true}
		}
	} else if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f == math.Trunc(f) && f < 1<<53 {
		*n = number{uint64(f), true}
	}
	return nil
}

// count returns a number that a counter may be, nil for others.
func (n number) count() *uint64 {
	if !n.known || n.value > most {
		return nil
	}
	return &n.value
}

// truth is true or false in JSON, and not known for everything else. Of a *bool the library leaves false
// where the value is text.
type truth hostcheck.Tri

func (t *truth) UnmarshalJSON(b []byte) error {
	*t = truth(word(string(b), "true", "false"))
	return nil
}

// decode reads JSON and leaves out the fields that are of another kind than wanted. Text before the first
// brace is skipped: tools print warnings there.
func decode(b []byte, into any) error {
	if i := strings.IndexByte(string(b), '{'); i > 0 {
		b = b[i:]
	}
	err := json.Unmarshal(b, into)
	if odd := (*json.UnmarshalTypeError)(nil); errors.As(err, &odd) {
		return nil
	}
	return err
}
