package dpsupdate

import (
	"errors"
	"strconv"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// violation returns the error for an answer that is not one. Another one may be.
func violation(text string) error { return protocolError(operr.Violation(text)) }

// malformed returns the error for an offer that no agent can accept. The same one would come again.
func malformed(text string) error {
	return protocolError(errors.New("the offer is malformed: " + text))
}

func protocolError(cause error) error {
	return &transport.Error{Kind: transport.Protocol, Op: transport.OpCall, Err: cause}
}

// readAnswer reads the answer to a check. memo is what was sent.
func readAnswer(a *provisioning.Answer, memo agent.Memo) (*agent.Answer, error) {
	if !jsonscan.IsObject(a.Body) {
		return nil, violation("the answer to a check is not a JSON object")
	}
	if configuration := jsonscan.Value(a.Body, "serviceConfiguration"); configuration != nil {
		memo.RootKeysURL = jsonscan.TextOf(configuration, "rootKeyDownloadUrl")
		if len(memo.RootKeysURL) > agent.MaxURL {
			return nil, malformed("the address of the root keys has " + strconv.Itoa(len(memo.RootKeysURL)) + " bytes")
		}
	}
	readETag(&memo.ConfigETag, jsonscan.Value(a.Body, "serviceConfigEtag"))
	readETag(&memo.AgentInfoETag, jsonscan.Value(a.Body, "agentInfoEtag"))
	answer := &agent.Answer{Memo: memo, RetryAfter: a.RetryAfter}
	metadata := jsonscan.Value(a.Body, "updateMetadata")
	if metadata == nil {
		return answer, nil
	}
	var err error
	answer.Offer, err = readOffer(metadata)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// readETag replaces an etag. A missing one is still the one that was sent. One that is longer than
// the service's own limit is not kept: the next check asks without it.
func readETag(etag *string, raw []byte) {
	if raw == nil {
		return
	}
	if *etag = jsonscan.Text(raw); len(*etag) > agent.MaxETag {
		*etag = ""
	}
}

// readOffer reads an offer. All members are required.
func readOffer(metadata []byte) (*agent.Offer, error) {
	var manifest string
	o := &agent.Offer{URLs: map[string]string{}}
	for _, m := range [...]struct {
		name string
		into *string
		most int
	}{
		{"workflowId", &o.WorkflowID, agent.MaxWorkflowID},
		{"updateManifest", &manifest, agent.MaxManifest},
		{"updateManifestSignature", &o.Signature, agent.MaxSignature},
	} {
		*m.into = jsonscan.TextOf(metadata, m.name)
		if n := len(*m.into); n == 0 || n > m.most {
			return nil, malformed(m.name + " is missing, no text or longer than " + strconv.Itoa(m.most) + " bytes")
		}
	}
	o.Manifest = []byte(manifest)
	wrong := ""
	if !jsonscan.Members(jsonscan.Value(metadata, "fileUrls"), func(id string, raw []byte) {
		if o.URLs[id] = jsonscan.Text(raw); o.URLs[id] == "" || len(o.URLs[id]) > agent.MaxURL {
			wrong = "an address in fileUrls is no text or longer than " + strconv.Itoa(agent.MaxURL) + " bytes"
		}
	}) {
		wrong = "fileUrls is missing or no object"
	}
	if len(o.URLs) > agent.MaxFiles {
		wrong = "fileUrls has more than " + strconv.Itoa(agent.MaxFiles) + " addresses"
	}
	if wrong != "" {
		return nil, malformed(wrong)
	}
	return o, nil
}
