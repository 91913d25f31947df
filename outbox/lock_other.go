//go:build (!unix && !windows) || solaris || illumos || aix

package outbox

import "os"

// lockFile refuses: package syscall has no lock here that ends with the process and also excludes a
// second Queue of the same process.
func lockFile(*os.File) error { return errNoLock }
