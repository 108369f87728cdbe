// Package scenarios reads scenario and bench files and holds the built-in
// scenarios.
//
// It guarantees that a file means what it says or is refused: unknown and
// duplicate keys, anchors and merges, values of the wrong kind and settings that
// contradict each other are errors, each with its line, all of them at once.
// Nothing that could be a password is repeated in an error. The functions
// may be called concurrently; they block on reading the file only.
//
// Both formats are YAML; samples/ holds a commented file of each.
package scenarios
