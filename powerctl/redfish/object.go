package redfish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// object is one JSON object. Its keys are compared exactly, which a struct of
// encoding/json does not do.
type object map[string]json.RawMessage

// parseObject takes a whole object with nothing after it. A key that is there
// twice is an error: On and Off are not Off.
func parseObject(b []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("the answer is not a JSON object"), err)
	}
	o := object{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("the answer: %w", err)
		}
		key, _ := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("the answer: %w", err)
		}
		if _, twice := o[key]; twice {
			return nil, fmt.Errorf("the answer has %.60q twice", key)
		}
		o[key] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the answer has something after its end")
	}
	return o, nil
}

// object returns an object in this one; empty where there is none.
func (o object) object(key string) object {
	in, err := parseObject(o[key])
	if err != nil {
		return nil
	}
	return in
}

// text returns a string; empty where there is none.
func (o object) text(key string) string {
	var s string
	if json.Unmarshal(o[key], &s) != nil {
		return ""
	}
	return s
}

// line returns a string that disturbs no line of text.
func (o object) line(key string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, o.text(key)))
}

// flag returns a truth value, false where it is missing or null, and whether it
// is one at all.
func (o object) flag(key string) (value, ok bool) {
	raw, there := o[key]
	if !there {
		return false, true
	}
	ok = json.Unmarshal(raw, &value) == nil
	return value, ok
}
