//go:build !race

package simdrive

const raceEnabled = false
