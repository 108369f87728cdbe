package mysql

// Server error numbers. MariaDB and MySQL agree on those below 1900; of the
// later ones only such are used that the other server does not give for
// something else.
const (
	erConCount               = 1040 // too many connections
	erDBAccessDenied         = 1044
	erAccessDenied           = 1045
	erNoDB                   = 1046
	erBadNull                = 1048
	erBadDB                  = 1049 // unknown database
	erServerShutdown         = 1053
	erBadField               = 1054
	erParse                  = 1064
	erRecordFileFull         = 1114 // table is full
	erHostIsBlocked          = 1129
	erTableAccessDenied      = 1142
	erColumnAccessDenied     = 1143
	erNoSuchTable            = 1146
	erCrashedOnUsage         = 1194
	erTooManyUserConnections = 1203
	erLockWaitTimeout        = 1205
	erLockDeadlock           = 1213
	erUserLimit              = 1226 // max_updates_per_hour and the like
	erSpecificAccessDenied   = 1227
	erNotSupportedAuth       = 1251
	erOptionPrevents         = 1290 // read_only
	erNoDefault              = 1364
	erDataTooLong            = 1406
	erAccessDeniedNoPassword = 1698
	erReadOnlyTransaction    = 1792
	erReadOnlyMode           = 1836 // innodb_read_only and the like
	erOpenAsReadonly         = 1036
	erGetErrno               = 1030 // any error of the engine
	erNotFormFile            = 1033 // the .frm file is damaged
	erNotKeyfile             = 1034 // what InnoDB's "page is corrupt" becomes
	erIndexCorrupt           = 1712
	erTablespaceMissing      = 1812
	erTableCorrupt           = 1877
	erConnectionKilled       = 1927 // MariaDB
	erNoSuchTableInEngine    = 1932
	erSessionWasKilled       = 3169 // MySQL
)

// statementRefused reports whether an autocommit statement that was answered
// with this error has certainly not committed, and will not.
//
// Numbers that the commit itself can bring are left out, for the server may
// already have made the transaction durable or handed it to recovery: 1180
// (error during commit), 1317 (interrupted), 1053 (shutdown), 1026 and 1021 (the
// binlog cannot be written: what is in it already is committed by the next
// recovery), 1105 and 1030 (anything). So are those that a proxy can make up while it
// connects anew and sends again: 1040, 1045, 1203, 1243.
//
// 1062 (duplicate key) is left out too. It says that the row is there already,
// and refused says that it is not: with a proxy that sends a statement twice the first
// one has committed, and calling it refused would make its row a phantom.
func statementRefused(errno uint32) bool {
	switch errno {
	case erLockWaitTimeout, erLockDeadlock: // rolled back; the transaction's SQL state is 40001 or the statement's
		return true
	case erOptionPrevents, erReadOnlyTransaction, erReadOnlyMode, erOpenAsReadonly: // checked before a row is written
		return true
	case erRecordFileFull: // the row has no room; found while it is written
		return true
	case erDBAccessDenied, erTableAccessDenied, erColumnAccessDenied, erUserLimit: // checked before execution
		return true
	case erBadDB, erNoDB, erNoSuchTable, erBadField, erParse: // found while the statement is prepared
		return true
	case erBadNull, erNoDefault, erDataTooLong: // found while the row is put together, strict mode
		return true
	}
	return false
}

// commitRefused is statementRefused for COMMIT. Only what the servers check
// before they begin to prepare the transaction is listed, and what the standard
// defines as a rollback: no room, privilege or syntax can be missing any more.
func commitRefused(errno uint32) bool {
	switch errno {
	case erLockWaitTimeout: // BACKUP or FLUSH TABLES holds the commit lock; rolled back
		return true
	case erLockDeadlock: // Galera's certification failed; rolled back
		return true
	case erOptionPrevents: // read_only was switched on in the meantime; rolled back
		return true
	}
	return false
}

// saysShutdown reports whether the server said that it shuts down or that
// somebody ended the connection on purpose: a power cut says neither.
func saysShutdown(errno uint32) bool {
	return errno == erServerShutdown || errno == erConnectionKilled || errno == erSessionWasKilled
}

// unreadable reports whether the error says that the table, or a part of it, is
// gone or damaged, and cannot come from something harmless.
//
// Left out because they can: 1030 and 1296 (any engine error, also out of
// memory; classify looks at what the server says beside 1030), 1016 and 1017 (too many open files, missing rights to the file), 1286
// (engine not loaded), 1815, 1105, 1021, 1037 (memory), 1040, 1044, 1142, 1205, 1317,
// 1969. Left out because a SELECT on InnoDB never brings them: 1035, 1195, 1813,
// 1814 (somebody discarded the tablespace), and the numbers below 1000, which are not the
// server's.
//
// 1034 can also be said of a temporary table on a full disk: the scans use none.
func unreadable(errno uint32) bool {
	switch errno {
	case erBadDB, erNoSuchTable, // dropped, or lost from the data dictionary
		erNotFormFile, erNotKeyfile, erCrashedOnUsage, erIndexCorrupt, erTableCorrupt,
		erTablespaceMissing, erNoSuchTableInEngine:
		return true
	}
	return false
}

// denied reports whether the error says that a privilege is missing.
func denied(errno uint32) bool {
	switch errno {
	case erDBAccessDenied, erTableAccessDenied, erColumnAccessDenied, erSpecificAccessDenied:
		return true
	}
	return false
}
