package cli

// The exit statuses of dlock. Those above 120 are chosen as env, nohup and timeout
// choose theirs, so that dlock run can pass the status of its command beside them.
const (
	exitOK       = 0
	exitNo       = 1   // check found something; break broke nothing
	exitLost     = 123 // run: the lock was lost while the command ran
	exitBusy     = 124 // run: the lock was not granted in the time allowed
	exitFailed   = 125 // dlock could not do it: wrong arguments, no store, an error of the store
	exitNotRun   = 126 // run: the command cannot be executed
	exitNotFound = 127 // run: there is no such command
	exitSignal   = 128 // plus the number of the signal
)

// exitTable is the table of statuses that dlock help shows.
const exitTable = `Exit status:
  0    done; dlock run: the command ended with 0
  1    check: there are warnings. break: no hold was broken
  123  run: the lock was lost before it was given back; the command was ended, or had ended
  124  run: the lock was not granted (--try, --wait, or a refused upgrade)
  125  dlock failed: wrong arguments, no store, or an error of the store
  126  run: the command cannot be executed
  127  run: the command was not found
  128+ ended by the signal with the number that is left after 128
dlock run passes every other status of its command.
`
