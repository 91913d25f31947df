package agent_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// A server that lies fails the step before Install sees the file.
func TestALyingFileServerIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		content string
		want    string
	}{
		"other bytes": {"another image", "SHA-256"},
		"more bytes":  {"correct image and more", "more than the size"},
		"fewer bytes": {"correct", "before the size"},
		"nothing":     {"", "before the size"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.offered("wf-1", "1.0", "correct image")
				r.files.content["https://files/wf-1/f0"] = []byte(row.content)
				r.runs(time.Hour)
				f := r.final()
				require.Equal(t, agent.Failed, f.Result.Outcome)
				require.Equal(t, agent.ManagedResource, f.Result.Origin)
				require.Equal(t, []uint32{agent.AreaHash.Code(0)}, f.Result.Extended)
				require.Contains(t, f.Result.Details, row.want)
				require.Equal(t, []string{"installed 0", "download 0", "cancel 0"}, r.device.calls)
				require.Empty(t, r.device.downloads)
			})
		})
	}
}

// flaky reads at most n bytes, then fails.
type flaky struct {
	io.Reader
	err error
}

func (f flaky) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

func (f flaky) Close() error { return nil }

// The reader goes on where a connection ended, however it ended.
func TestADownloadResumesAfterNetworkFailures(t *testing.T) {
	for name, failure := range map[string]error{"closed": io.EOF, "reset": errors.New("reset"),
		"cut short": io.ErrUnexpectedEOF, "busy": fault(transport.Unavailable)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				image := strings.Repeat("image ", 20)
				r.offered("wf-1", "1.0", image)
				r.files.body = func(_ int, body io.Reader) io.ReadCloser { return flaky{io.LimitReader(body, 50), failure} }
				r.files.fail = func(n int) error {
					if n == 2 {
						return fault(transport.Network)
					}
					return nil
				}
				r.runs(time.Hour)
				require.Equal(t, image, r.device.installed[0])
				require.Equal(t, agent.Succeeded, r.final().Result.Outcome)
				const url = "https://files/wf-1/f0"
				require.Equal(t, []string{url + "@0", url + "@50", url + "@50", url + "@100"}, r.files.fetched)
			})
		})
	}
}

// What an earlier program has stored of a file counts for its hash.
func TestADownloadGoesOnAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.offered("wf-1", "1.0", "a long image")
		stop := make(chan struct{})
		defer close(stop)
		r.files.body = func(_ int, body io.Reader) io.ReadCloser {
			return flaky{io.LimitReader(body, 6), fault(transport.Network)}
		}
		r.files.fail = func(n int) error {
			if n > 1 {
				return fault(transport.Network)
			}
			return nil
		}
		r.runs(10 * time.Minute)
		require.Equal(t, "a long", r.device.downloads["wf-1f0"])
		r.files.body, r.files.fail = nil, nil
		r.runs(time.Hour)
		require.Equal(t, "a long image", r.device.installed[0])
		require.Equal(t, "https://files/wf-1/f0@6", r.files.fetched[len(r.files.fetched)-1])

		r.device.downloads["wf-2f0"] = "longer than the new image"
		r.offered("wf-2", "2.0", "new image")
		r.runs(time.Hour)
		require.Contains(t, r.service.finals()[1].Result.Details, "discard it")
		r.device.downloads["wf-3f0"] = "neW"
		r.offered("wf-3", "3.0", "new image")
		r.runs(time.Hour)
		require.Contains(t, r.service.finals()[2].Result.Details, "SHA-256", "what is stored is verified, too")
	})
}

func TestAPolicyEndsADownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.offered("wf-1", "1.0", "image")
		r.files.content = map[string][]byte{}
		r.runs(time.Hour)
		f := r.final()
		require.Equal(t, []uint32{agent.AreaDownload.Code(0)}, f.Result.Extended)
		require.Equal(t, agent.ManagedResource, f.Result.Origin)
		require.Len(t, r.files.fetched, 1, "a file that is not there is not worth a retry")
	})
}
