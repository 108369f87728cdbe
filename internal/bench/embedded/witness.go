package embedded

import (
	"plugpull/internal/simdrive/sqlitevfs"
	"plugpull/internal/witness"
)

// witnessFile is the witness file's name on the drive.
const witnessFile = "witness"

// fileOf is the witness file as the file layer has it.
type fileOf struct{ *sqlitevfs.File }

func (f fileOf) Size() (int64, error) { return f.File.Size(), nil }

func (b *Bench) openWitness() (witness.File, error) {
	f, err := b.mount.fs.File(witnessFile)
	if err != nil {
		return nil, err
	}
	return fileOf{f}, nil
}
