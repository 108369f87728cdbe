// Package mysqld runs a MariaDB or MySQL server as a child process that can be
// killed and started again thousands of times an hour.
//
// It guarantees that a server reads no option file of the machine, listens only
// where it was told to, writes nothing but its data to the data folder's device,
// repairs nothing, and dies with the process that started it. When Kill has
// returned, no thread of the server is left, and what it forked has been sent SIGKILL. Why a server did not
// start, and how it ended, is told from exit codes, signals and bind(2): the text
// of its log is evidence for people and decides nothing.
//
// Everything runs as the calling user. There is no option for another one: a
// server that changes its user drops the signal that ties its life to its
// parent's.
package mysqld
