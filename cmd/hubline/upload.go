package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/fileupload"
)

// uploading has the flags of hubline upload.
type uploading struct {
	*connection
	name string
}

func (t *tool) uploadCommand() *cobra.Command {
	u := &uploading{}
	c := &cobra.Command{
		Use: "upload [flags] FILE", Short: "upload a file to the hub's storage", Args: arguments(1, 1),
		Long: "Uploads a file over HTTPS, in blocks, and repeats blocks that the network lost. FILE is - for the input.",
		RunE: func(c *cobra.Command, args []string) error { return u.run(c.Context(), args[0]) },
	}
	c.Flags().StringVar(&u.name, "name", "", "`NAME` in the storage; empty: that of the file")
	u.connection = t.connection(c)
	return c
}

func (u *uploading) run(ctx context.Context, path string) error {
	policy, err := u.retries()
	if err != nil {
		return err
	}
	in, size, err := u.source(ctx, path)
	if err != nil {
		return err
	}
	defer in.Close()
	to, err := u.resolve(ctx)
	if err != nil {
		return err
	}
	creds, network, err := to.HTTPS()
	if err != nil {
		return err
	}
	var sent atomic.Int64
	var failed atomic.Pointer[error] // the cause of the latest retry
	waiting := newAnswer(u.wait)
	defer waiting.stop()
	network.Dial = waiting.dialer(network.Dial)
	uploader, err := fileupload.New(creds, &fileupload.Options{
		Network: network, RetryPolicy: policy,
		OnProgress: func(p fileupload.Progress) { sent.Store(p.Sent) },
		OnRetry: func(r fileupload.Retry) {
			failed.Store(&r.Err)
			u.say("again in %v: %v", r.Delay.Round(time.Millisecond), r.Err)
		},
	})
	if err != nil {
		return err
	}
	bar := newProgress(u.tool, max(0, size), sent.Load, inBytes)
	result, err := uploader.Upload(waiting.within(ctx), u.name, in, size)
	bar.end()
	err = errors.Join(err, uploader.Close())
	switch {
	case err != nil && ctx.Err() != nil: // the error is that of the context or of the input, whichever was first
		return &exitError{exitFailed, errors.New("interrupted before the upload was complete")}
	case err != nil && waiting.late():
		return u.unreached(failed.Load())
	case err != nil:
		return err
	}
	u.say("%d bytes in %s, MD5 %x", result.Size, took(result.Duration), result.MD5)
	_, err = fmt.Fprintln(u.tool.out, result.Blob)
	return err
}

// unreached is the error of an upload that got no answer within -connect-timeout.
func (u *uploading) unreached(last *error) error {
	what := fmt.Sprintf("no answer from the service within %v", u.wait)
	if last == nil {
		return &exitError{exitNetwork, errors.New(what)}
	}
	return fmt.Errorf("%s: %w", what, *last)
}

// source opens the file and completes the name.
func (u *uploading) source(ctx context.Context, path string) (in io.ReadCloser, size int64, err error) {
	if path == "-" {
		if u.name == "" {
			return nil, 0, usage("-name: the input has no name; give one")
		}
		return io.NopCloser(interruptible(ctx, u.tool.in)), -1, nil
	}
	if u.name == "" {
		u.name = filepath.Base(path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, usage("%v", err)
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = errors.Join(usage("%s is a folder; give a file, such as an archive of it", path), file.Close())
		return nil, 0, err
	}
	if err == nil && !info.Mode().IsRegular() {
		return file, -1, nil // a pipe or a device: the size is not known
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}
