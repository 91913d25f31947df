package fileupload_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// The upload of a large file through 20 drops of the connection needs little memory. The file has
// 64 MiB, or the size in the environment variable HUBLINE_UPLOAD_MIB:
//
//	HUBLINE_UPLOAD_MIB=1024 go test -run TestALargeFileThroughTwentyDrops -v ./fileupload
const (
	drops     = 20
	allowance = 32 << 20 // of memory above that of an idle process with an Uploader
)

// An uploadInput is the input of the uploading process.
type uploadInput struct {
	Host, Addr, Device, Key string
	CA                      []byte
	Size                    int64
}

// A report is its output.
type report struct {
	Idle, Peak int64 // bytes of resident memory
	Result     fileupload.Result
	Seconds    float64
}

// stream returns the file: size pseudo-random bytes.
func stream(size int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{7}), size)
}

func TestALargeFileThroughTwentyDrops(t *testing.T) {
	size := int64(16 << 20)
	if text := os.Getenv("HUBLINE_UPLOAD_MIB"); text != "" {
		mib, err := strconv.Atoi(text)
		require.NoError(t, err)
		size = int64(mib) << 20
	}
	hub, err := testbroker.New(&testbroker.Options{Uploads: testbroker.UploadOptions{Digest: true}})
	require.NoError(t, err)
	defer hub.Close()
	dev, err := hub.AddDevice("dev-1")
	require.NoError(t, err)
	addr, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	var faults []*testbroker.Injected
	for i := range drops {
		f := fault.Fault{Kind: fault.CutBlobBody, Blob: fault.PutBlock,
			After: (i + 1) * int(size>>20) / (drops + 1)}
		if i%3 == 2 {
			f.Kind, f.Route = fault.ResetAfterRequest, fault.RouteBlob
		}
		faults = append(faults, hub.Inject(f))
	}

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestUploadChild$", "-test.v")
	child.Env = append(os.Environ(), "HUBLINE_UPLOAD_CHILD=1")
	in, err := json.Marshal(uploadInput{dev.HostName, addr.String(), dev.ID, dev.PrimaryKey, hub.CAPEM(), size})
	require.NoError(t, err)
	child.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.Output()
	require.NoError(t, err, "%s%s", out, stderr.String())
	_, text, found := strings.Cut(string(out), "report: ")
	require.True(t, found, "%s", out)
	var r report
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&r))

	fired := 0
	for _, f := range faults {
		fired += f.Fired()
	}
	require.Equal(t, drops, fired)
	require.GreaterOrEqual(t, r.Result.Retries, drops)
	blob, ok := hub.Blob("dev-1/large")
	require.True(t, ok)
	require.Equal(t, size, blob.Size)
	require.NoError(t, blob.Matches(stream(size)))
	require.Equal(t, r.Result.MD5[:], blob.MD5)
	require.Equal(t, hubdata.UploadSucceeded, hub.Uploads()[0].State)
	t.Logf("%d MiB in %d blocks through %d drops, %d requests again, %.1f s; memory: %.1f MiB idle, %.1f MiB at the "+
		"peak, %.1f MiB more", size>>20, r.Result.Blocks,
		fired, r.Result.Retries, r.Seconds, float64(r.Idle)/(1<<20), float64(r.Peak)/(1<<20), float64(r.Peak-r.Idle)/(1<<20))
	if r.Peak == 0 || raceEnabled {
		t.Log("memory not judged: with the race detector, or on this system, the figure means nothing")
		return
	}
	require.Less(t, r.Peak-r.Idle, int64(allowance))
}

// TestUploadChild is the body of the uploading process.
func TestUploadChild(t *testing.T) {
	if os.Getenv("HUBLINE_UPLOAD_CHILD") == "" {
		t.Skip("the process that TestALargeFileThroughTwentyDrops starts")
	}
	var e uploadInput
	require.NoError(t, json.NewDecoder(os.Stdin).Decode(&e))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(e.CA))
	sign, err := transport.SharedKey(e.Key)
	require.NoError(t, err)
	u, err := fileupload.New(&transport.Credentials{Host: e.Host, DeviceID: e.Device, Sign: sign}, &fileupload.Options{
		Network: netopt.Options{TLS: &tls.Config{RootCAs: pool}, Addr: e.Addr},
	})
	require.NoError(t, err)
	defer u.Close()
	runtime.GC()
	r := report{Idle: memory(t, "VmRSS:")}
	began := time.Now()
	r.Result, err = u.Upload(t.Context(), "large", stream(e.Size), -1)
	require.NoError(t, err)
	r.Seconds, r.Peak = time.Since(began).Seconds(), memory(t, "VmHWM:")
	out, err := json.Marshal(r)
	require.NoError(t, err)
	_, _ = os.Stdout.WriteString("report: " + string(out) + "\n")
}

// memory returns a memory figure of this process in bytes; 0 if the system has none.
func memory(t *testing.T, name string) int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name); ok {
			kb, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
			require.NoError(t, err)
			return kb << 10
		}
	}
	return 0
}
