package swap

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// execute replaces this process by a program. Tests replace it.
var execute = syscall.Exec

// Start counts the starts of a program that replaces itself. Call it with the program's File.Path,
// first on the path of main that runs as the service: each call counts, and one behind a flag such
// as -version would use up the trial. If the new program is on trial and has been started tries times without
// having ended that, Start puts the old program back and continues as that one: it does not return.
// Otherwise it returns nil, or an error after which the program should go on.
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
	out, err := os.OpenFile(d.starts, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	if info.Size() < int64(tries) {
		_, err := out.Write([]byte{'.'})
		return errors.Join(err, out.Sync())
	}
	if err := d.restore(); err != nil {
		return err
	}
	return fmt.Errorf("swap: start %s: %w", d.path, execute(d.path, os.Args, os.Environ()))
}
