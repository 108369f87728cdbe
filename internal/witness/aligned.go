package witness

import "unsafe"

// offset returns the index of the first byte of b that lies at a multiple of RecordSize. The
// garbage collector does not move what is on the heap.
func offset(b []byte) int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) % RecordSize
	return int((RecordSize - at) % RecordSize)
}
