package outbox_test

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
)

// tmpfsEnv is set in the process with its own mount namespace. It is the folder of the small file
// system.
const tmpfsEnv = "HUBLINE_OUTBOX_TMPFS"

// A real file system of 700 KB is filled, and accepts messages again without a restart.
func TestAFullFileSystemRecovers(t *testing.T) {
	if folder := os.Getenv(tmpfsEnv); folder != "" {
		require.NoError(t, syscall.Mount("outbox", folder, "tmpfs", 0, "size=700k,mode=0700"))
		for _, every := range []time.Duration{0, time.Millisecond, -1} {
			for _, overflow := range []device.Overflow{device.OverflowBlock, device.OverflowDropOldest} {
				fullDisk(t, outbox.OS, folder+"/"+every.String()+"-"+string('0'+rune(overflow)),
					&outbox.Options{SyncEvery: every, Overflow: overflow})
			}
		}
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), tmpfsEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 { // root in a user namespace may mount file systems
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Skipf("SKIPPED: no mount namespace (%v); a full file system is NOT verified, only a simulated one", err)
	}
	err = cmd.Wait()
	if err != nil && bytes.Contains(out.Bytes(), []byte(syscall.EPERM.Error())) {
		t.Skipf("SKIPPED: no tmpfs may be mounted; a full file system is NOT verified, only a simulated one\n%s", &out)
	}
	require.NoError(t, err, "%s", &out)
	require.Contains(t, out.String(), "--- PASS: "+t.Name())
}
