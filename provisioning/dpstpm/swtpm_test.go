//go:build unix

package dpstpm_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/stretchr/testify/require"
)

// swtpm starts a TPM in software whose state is in dir. It ends with the connection.
func swtpm(t testing.TB, dir string) transport.TPMCloser {
	t.Helper()
	path, err := exec.LookPath("swtpm")
	if err != nil {
		if os.Getenv("HUBLINE_REQUIRE_PEERS") == "1" {
			t.Fatal("swtpm is missing, and HUBLINE_REQUIRE_PEERS=1")
		}
		line := "SKIPPED: " + t.Name() + ": swtpm is missing (Debian: apt-get install swtpm)"
		fmt.Fprintln(os.Stderr, line)
		t.Skip(line)
	}
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	syscall.CloseOnExec(ends[0])
	theirs, ours := os.NewFile(uintptr(ends[1]), "swtpm"), os.NewFile(uintptr(ends[0]), "test")
	cmd := exec.Command(path, "socket", "--tpm2", "--fd", "3", "--tpmstate", "dir="+dir, "--flags",
		"not-need-init,startup-clear")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, theirs.Close())
	conn, err := net.FileConn(ours)
	require.NoError(t, err)
	require.NoError(t, ours.Close())
	device := &closer{transport.FromReadWriteCloser(conn), cmd}
	t.Cleanup(func() { _ = device.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return device
}

// A closer is a connection with swtpm that waits for its end.
type closer struct {
	transport.TPMCloser
	cmd *exec.Cmd
}

func (c *closer) Close() error {
	if c.cmd == nil {
		return nil
	}
	err := c.TPMCloser.Close()
	kill := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.cmd.Wait()
	c.cmd = nil
	return err
}
