package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/host"
	"github.com/hubline-iot/hubline/update/httprange"
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
			inRig(t, func(t *testing.T, r *rig) {
				r.offered("wf-1", "1.0", "correct image")
				r.files.content["https://files/wf-1/f0"] = []byte(row.content)
				r.runs(time.Hour)
				f := r.final()
				require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
				require.Equal(t, agent.OriginManagedResource, f.Result.Origin)
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
			inRig(t, func(t *testing.T, r *rig) {
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
				require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
				const url = "https://files/wf-1/f0"
				require.Equal(t, []string{url + "@0", url + "@50", url + "@50", url + "@100"}, r.files.fetched)
			})
		})
	}
}

// What an earlier program has stored of a file counts for its hash.
func TestADownloadGoesOnAfterAReset(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
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

func TestAPolicyCountsTheReadsOfADownload(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.options.Policy = retrypolicy.MaxAttempts{Total: 2, Policy: fixed}
		r.files.fail = func(int) error { return fault(transport.Network) }
		r.offered("wf-1", "1.0", "image")
		r.runs(time.Hour)
		require.Len(t, r.files.fetched, 2)
		f := r.final()
		require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
		require.Equal(t, []uint32{agent.AreaDownload.Code(0)}, f.Result.Extended)
	})
}

func TestAPolicyEndsADownload(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "image")
		r.files.content = map[string][]byte{}
		r.runs(time.Hour)
		f := r.final()
		require.Equal(t, []uint32{agent.AreaDownload.Code(0)}, f.Result.Extended)
		require.Equal(t, agent.OriginManagedResource, f.Result.Origin)
		require.Len(t, r.files.fetched, 1, "a file that is not there is not worth a retry")
	})
}

// drip is a body that brings a byte at a time, each after a pause.
type drip struct {
	ctx   context.Context
	pause time.Duration
	io.Reader
}

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-time.After(d.pause):
		return d.Reader.Read(p[:1])
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (drip) Close() error { return nil }

// A server that keeps a connection busy, and brings next to nothing, counts as one that fails: the
// policy is asked in one series, and the download goes on at a server that does better.
func TestADownloadBelowAFloorOfProgressIsRepeated(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		image := strings.Repeat("image ", 20)
		r.device.chunk = 4096
		r.offered("wf-1", "1.0", image)
		r.files.body = func(n int, body io.Reader) io.ReadCloser {
			if n > 3 {
				return io.NopCloser(body)
			}
			return drip{r.files.ctx, 29 * time.Second, body}
		}
		var shown []string
		r.options.Policy = retrypolicy.Func(func(retry int, err error) (bool, time.Duration) {
			shown = append(shown, err.Error())
			return true, time.Duration(retry) * time.Hour
		})
		r.runs(24 * time.Hour)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
		require.Equal(t, image, r.device.installed[0])
		const url = "https://files/wf-1/f0"
		require.Equal(t, []string{url + "@0", url + "@6", url + "@12", url + "@18"}, r.files.fetched)
		slow := "update timed out: file: the server sent less than 1 KB in 2 minutes"
		require.Equal(t, []string{slow, slow, slow}, shown)
	})
}

// The time that a connection needs, such as that of a modem, is not the server's.
func TestASlowConnectBelongsToNoTransfer(t *testing.T) {
	for _, inRead := range []bool{false, true} {
		inRig(t, func(t *testing.T, r *rig) {
			r.device.chunk = 4096
			r.offered("wf-1", "1.0", "image")
			r.files.body = func(_ int, body io.Reader) io.ReadCloser {
				if !inRead {
					time.Sleep(10 * time.Minute)
					return drip{r.files.ctx, time.Second, body}
				}
				return drip{r.files.ctx, time.Second, io.MultiReader(late{10 * time.Minute}, body)}
			}
			r.runs(time.Hour)
			require.Equal(t, "image", r.device.installed[0])
			require.Len(t, r.files.fetched, 1)
		})
	}
}

// late is empty, and has its end after a time.
type late struct{ time.Duration }

func (l late) Read([]byte) (int, error) {
	time.Sleep(l.Duration)
	return 0, io.EOF
}

// A server that closes after each byte is one that fails, too.
func TestAServerThatClosesAfterEachByteIsNotAskedWithoutPauses(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.device.chunk = 4096
		r.offered("wf-1", "1.0", strings.Repeat("image ", 20))
		r.files.body = func(_ int, body io.Reader) io.ReadCloser { return flaky{io.LimitReader(body, 1), io.EOF} }
		require.ErrorIs(t, r.run(10*time.Minute), context.DeadlineExceeded)
		require.Less(t, len(r.files.fetched), 40, "two for each attempt")
	})
}

// The package with the keys is short. Waiting for it has an end.
func TestKeysThatDripAreFetchedAgain(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "image")
		r.service.answer.Memo.RootKeysURL = "https://keys"
		r.files.content["https://keys"] = []byte(strings.Repeat("k", 1000))
		r.options.RootKeys = func([]byte) error { return nil }
		r.files.body = func(n int, body io.Reader) io.ReadCloser {
			if n > 1 {
				return io.NopCloser(body)
			}
			return drip{r.files.ctx, 29 * time.Second, body}
		}
		r.runs(time.Hour)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
	})
}

// A server may answer another part once, such as from a broken cache on the way. One that always
// does fails the step, over both fetchers alike.
func TestAServerThatAlwaysSendsAnotherPartFailsTheStep(t *testing.T) {
	const answer = "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\nContent-Range: bytes 7-8/9\r\n\r\nab"
	for _, last := range []int{3, 1 << 30} { // the latest request that is answered wrongly
		requests := 0
		fetchers := map[string]agent.Fetcher{
			"httprange": &httprange.Fetcher{Dial: func(context.Context, string, bool) (httprange.Conn, error) {
				near, far := memconn.Pair("board", "server")
				go serveOnce(far, func() string {
					if requests++; requests <= last {
						return answer
					}
					return "HTTP/1.1 206 OK\r\nContent-Length: 9\r\nContent-Range: bytes 0-8/9\r\n\r\nthe image"
				})
				return near, nil
			}},
			"host": host.NewFetcher(&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				if requests++; requests <= last {
					return http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
				}
				return http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\n\r\nthe image")), nil)
			})}),
		}
		for name, fetcher := range fetchers {
			t.Run(fmt.Sprint(name, " ", last), func(t *testing.T) {
				requests = 0
				inRig(t, func(t *testing.T, r *rig) {
					r.options.Fetch = fetcher
					r.offered("wf-1", "1.0", "the image")
					r.runs(48 * time.Hour)
					f := r.final()
					require.Equal(t, 4, requests)
					if last == 3 {
						require.Equal(t, agent.OutcomeSucceeded, f.Result.Outcome, f.Result.Details)
						return
					}
					require.Equal(t, agent.OutcomeFailed, f.Result.Outcome)
					require.Equal(t, agent.OriginManagedResource, f.Result.Origin)
					require.Contains(t, f.Result.Details, "the server sent another part than the requested one")
				})
			})
		}
	}
}

// serveOnce answers a request, and ends the connection when the peer does.
func serveOnce(c net.Conn, answer func() string) {
	defer c.Close()
	if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
		return
	}
	_, _ = io.WriteString(c, answer())
	_, _ = io.Copy(io.Discard, c)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
