package httprelay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxDepth bounds how deep an answer is nested.
const maxDepth = 32

// parseJSON takes one whole JSON value with nothing after it. A key that is there twice in
// one object is an error: on and off are not off. Numbers keep their form (json.Number).
func parseJSON(b []byte) (any, error) {
	if !json.Valid(b) {
		return nil, errors.New("the answer is not one whole JSON value")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return decodeValue(d, 0)
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the answer is nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	switch t {
	case json.Delim('{'):
		return decodeObject(d, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return t, nil
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("the answer: %w", err)
		}
		key, _ := t.(string)
		if _, twice := object[key]; twice {
			return nil, errors.New("the answer has a key twice in one object")
		}
		if object[key], err = decodeValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}
