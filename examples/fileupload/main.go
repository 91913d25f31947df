// Command fileupload uploads a file of a device to the storage of its hub, and shows its progress.
//
// Without a connection string it starts its own hub, which disturbs the upload in every way that it
// supports: it cuts the connection in blocks and after them, reports busy storage, damages a byte,
// and revokes the upload URI. The exit status is 0 only if the file still arrived unchanged.
//
//	go run ./examples/fileupload                  16 MiB of noise through ten faults
//	go run ./examples/fileupload picture.jpg      a file of yours
//	HUBLINE_CONNECTION_STRING=... go run ./examples/fileupload picture.jpg    to a real hub; -hub $HUB: to a testhub
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// faults are the in-process hub's faults for the upload. After counts the requests to storage.
var faults = []fault.Fault{
	{Kind: fault.CutBlobBody, After: 2, Times: 3},
	{Kind: fault.ResetAfterRequest, Route: fault.RouteBlob, After: 7},
	{Kind: fault.DamageBlob, After: 9},
	{Kind: fault.AnswerStatus, Route: fault.RouteBlob, Statuses: []int{500}, RetryAfter: time.Second, After: 11},
	{Kind: fault.ExpireUpload, After: 13},
	{Kind: fault.SlowBlob, Delay: time.Second, After: 15},
	{Kind: fault.ResetAfterRequest, Route: fault.RouteBlob, Blob: fault.PutBlockList},
	{Kind: fault.ResetAfterRequest, Route: fault.RouteUploadDone},
}

func main() {
	var to setup.Target
	to.Flags()
	setup.Main(1, &to, func(ctx context.Context) error { return run(ctx, to, flag.Arg(0)) })
}

func run(ctx context.Context, to setup.Target, path string) error {
	name, file := "noise", io.ReadSeeker(bytes.NewReader(noise(16<<20)))
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		name, file = filepath.Base(path), f
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}

	options := &fileupload.Options{OnProgress: progress, OnRetry: retry}
	var hub *testbroker.Hub
	var played []*testbroker.Injected
	connect := to.Connect
	if connect == "" {
		if hub, err = testbroker.New(nil); err != nil {
			return err
		}
		defer hub.Close()
		if connect, played, err = prepare(hub, options); err != nil {
			return err
		}
	} else {
		at, err := to.Find(ctx, "https")
		if err != nil {
			return err
		}
		options.Network.Addr, options.Network.TLS = at.Addr, at.TLS
	}
	creds, err := device.ParseConnectionString(connect)
	if err != nil {
		return err
	}
	uploader, err := fileupload.New(creds, options)
	if err != nil {
		return err
	}
	defer uploader.Close()
	result, err := uploader.Upload(ctx, name, file, size)
	fmt.Println()
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%d bytes in %d blocks, MD5 %x, %d requests sent again, %d upload URIs renewed, %.1f s\n",
		result.URL, result.Size, result.Blocks, result.MD5, result.Retries, result.Renewals, result.Duration.Seconds())
	if hub == nil {
		return nil
	}
	for _, fault := range played {
		if fault.Fired() == 0 && path == "" {
			return errors.New("a fault did not happen")
		}
	}
	return check(hub, result, file)
}

// prepare sets up the in-process hub and returns a device's connection string, and the injected
// faults.
func prepare(hub *testbroker.Hub, options *fileupload.Options) (connect string, played []*testbroker.Injected,
	err error) {
	addr, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	dev, err := hub.AddDevice("roof-7")
	if err != nil {
		return "", nil, err
	}
	options.Network.Addr, options.Network.TLS = addr.String(), hub.ClientTLS()
	for _, f := range faults {
		played = append(played, hub.Inject(f))
	}
	return dev.ConnectionString(), played, nil
}

// check compares the in-process hub's file with the sent one.
func check(hub *testbroker.Hub, result fileupload.Result, file io.ReadSeeker) error {
	blob, ok := hub.Blob(result.Blob)
	if !ok {
		return errors.New("the file is not in storage")
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := blob.Matches(file); err != nil {
		return err
	}
	for _, up := range hub.Uploads() {
		fmt.Printf("the hub knows of an upload of %s: %v\n", up.Blob, up.State)
	}
	fmt.Println("the file in storage is the file that was sent")
	return nil
}

// progress draws a bar.
func progress(p fileupload.Progress) {
	const width = 40
	done := width
	if p.Size > 0 {
		done = int(p.Sent * width / p.Size)
	}
	fmt.Printf("\r[%s%s] %5.1f MiB", strings.Repeat("#", done), strings.Repeat(".", width-done), float64(p.Sent)/(1<<20))
}

// retry prints why something is sent again.
func retry(r fileupload.Retry) {
	fmt.Printf("\r%-56s\n", fmt.Sprintf("%s, retry %d in %v: %v", r.Step, r.Number, r.Delay.Round(time.Millisecond),
		r.Err))
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b
}
