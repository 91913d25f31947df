package swap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// execute replaces this process by a program. Tests replace it.
var execute = syscall.Exec

// Start counts the starts of a program that replaces itself. Call it with the program's File.Path,
// first on the path of main that runs as the service: each call counts, and one behind a flag such
// as -version would use up the trial. If the new program is on trial and has been started tries
// times without having ended that, or a start cannot be counted, Start puts the old program back
// and continues as that one: it does not return. Otherwise it returns nil, or an error after which
// the program should go on.
//
// Start cannot help if the new file cannot be run at all. File.Check finds that before the
// exchange.
func Start(path string, tries int) error {
	d, err := open(path)
	if err != nil {
		return err
	}
	if !d.trial || d.same || !regular(d.old) {
		return nil
	}
	counted, err := count(d.starts, tries)
	if counted && err == nil || errors.Is(err, fs.ErrNotExist) { // the trial has just ended
		return nil
	}
	// A start that is not counted could repeat for ever.
	if failed := d.restore(); failed != nil {
		return errors.Join(err, failed)
	}
	return fmt.Errorf("swap: start %s: %w", d.path, errors.Join(err, execute(d.path, os.Args, os.Environ())))
}

// count counts a start at path, and reports whether it is one of the first tries. Tests replace it.
var count = func(path string, tries int) (bool, error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return false, err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil || info.Size() >= int64(tries) {
		return false, err
	}
	_, err = out.Write([]byte{'.'})
	return true, errors.Join(err, out.Sync())
}
