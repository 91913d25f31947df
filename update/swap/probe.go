package swap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"
)

// Command returns a function that runs a command and returns nil if its exit status is 0. The error
// has the end of its output.
func Command(name string, args ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		c := exec.CommandContext(ctx, name, args...)
		endWithChildren(c)
		c.WaitDelay = time.Second
		var out tail
		c.Stdout, c.Stderr = &out, &out
		// A daemon that the command has left may hold the output.
		if err := c.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
}

// tail keeps the last bytes that were written.
type tail []byte

const maxTail = 512

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p[max(0, len(p)-maxTail):]...)
	*t = (*t)[max(0, len(*t)-maxTail):]
	return len(p), nil
}

// HTTP returns a function that returns nil if a GET of url is answered with a status from 200 to
// 299.
func HTTP(url string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		q.Close = true // the service may be another process at the next call
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		if a.StatusCode < 200 || a.StatusCode > 299 {
			return fmt.Errorf("GET %s: status %s", url, a.Status)
		}
		return nil
	}
}

// Dial returns a function that returns nil if address accepts a connection, such as a socket of
// network "unix".
func Dial(network, address string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}
