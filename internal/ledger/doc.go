// Package ledger is the off-host record of every commit's outcome: an
// append-only file that hexdump can read, its writer and its reader.
//
// It guarantees that a record is durable once [Writer.Sync] has returned for
// it, that a record which did not reach the disk can only turn a row into
// unknown, that a damaged record in the middle of the file is reported and
// never skipped, and that one process at a time writes a ledger. It does not
// judge: that is the verifier's.
//
// # File format, version 1
//
// A header of 64 bytes, then records of 64 bytes. All integers are little
// endian; times are nanoseconds of CLOCK_BOOTTIME on the control host; CRC-32C
// uses the Castagnoli polynomial.
//
// Header:
//
//	 0  16  magic "plugpull ledger\n"
//	16   4  version, 1
//	20   4  size of a record, 64
//	24  16  run id
//	40  16  boot id of the control host when the ledger was created
//	56   4  zero
//	60   4  CRC-32C of bytes 0–59
//
// Record:
//
//	 0   1  kind
//	 1   1  code: what it means depends on the kind
//	 2   2  stream
//	 4   4  session
//	 8   8  from
//	16   8  to
//	24   8  sent
//	32   8  answered
//	40   4  errno
//	44   4  cycle
//	48   8  count
//	56   4  zero
//	60   4  CRC-32C of the run id, the record's index (8 bytes, the first
//	        record after the header is 0) and bytes 0–59
//
// By kind (fields not named are zero):
//
//	1 session  session; from = the wall clock, Unix ns; to = the token in the MEMORY table; sent = now; cycle; count = epoch
//	2 stream   session, stream; code = stream kind; from = first number; to = the server's connection id; sent = now
//	3 reserve  session, stream; from..to may be sent once this record is durable; sent = now
//	4 outcome  session, stream; code = outcome; from = to = number; sent; answered; errno
//	5 skip     session, stream; from..to were certainly not sent
//	6 end      session, stream; code = end; from = last number sent, zero for none; answered = now; errno
//	7 mark     code = mark; session; cycle; answered; count
//	8 pin      code = pin class; session and cycle of the verification; stream; from..to; count = commits charged; errno = stream kind; answered = now
//	9 text     code = text key; stream = chunk number; session; byte 8 = length of this
//	           chunk, 0–51, plus 128 on the last chunk; bytes 9–59 the chunk. No other record stands between two chunks
package ledger
