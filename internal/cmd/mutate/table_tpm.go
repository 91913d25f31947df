package main

func init() {
	tables["tpm"] = []mutation{
		// The device activates each key that the service sends.
		{File: "provisioning/tpm_std.go", Old: "return r.c.activate(r.ctx, key)", New: "_ = key\n\treturn nil",
			Test: "./provisioning -run TestATPMProvesTheIdentity"},
		{File: "provisioning/tpm_std.go", Old: "n < 3 || n > maxPublicKey || int(", New: "int(",
			Test: "./provisioning -run TestWrongUsesOfATPM"},
		{File: "provisioning/dpshttp/tpm.go", Old: "bytes.Clone(bytes.TrimSuffix(body, []byte(\"}\")))",
			New: "bytes.TrimSuffix(body, []byte(\"}\"))", Test: "./provisioning/dpshttp -run TestARegisterOfATPM"},
		{File: "provisioning/dpshttp/tpm.go", Old: "len(challenge) == 0 && s.token", New: "s.token",
			Test: "./provisioning/dpshttp -run TestALaterChallenge"},
		{File: "provisioning/dpshttp/tpm.go", Old: "case limited.Err() != nil:", New: "case false:",
			Test: "./provisioning/dpshttp -run TestASlowTPM"},

		// The service encrypts for the enrolled TPM alone, and the proof is the token.
		{File: "testbroker/internal/dps/tpm.go", Old: "!bytes.Equal(t.Endorsement, e.EndorsementKey)",
			New:  "bytes.Equal(nil, e.EndorsementKey)",
			Test: "./testbroker -run TestRefusedTPMs"},
		{File: "testbroker/internal/dpsamqp/tpm.go", Old: "return nil, a.identify(d.path, &token, &d.tpm)",
			New: "_ = token\n\treturn nil, nil", Test: "./testbroker -run TestRefusedTPMsOverAMQP"},
		{File: "testbroker/internal/tpm2/public.go", Old: "!bytes.Equal(k.policy, endorsementPolicy)",
			New:  "bytes.Equal(nil, endorsementPolicy)",
			Test: "./testbroker -run TestRefusedTPMs"},
		{File: "testbroker/internal/tpm2/wrap.go", Old: "parent.newSeed(\"DUPLICATE\")", New: "parent.newSeed(\"IDENTITY\")",
			Test: "./testbroker/internal/tpm2"},
		{File: "testbroker/internal/tpm2/wrap.go", Old: "mac.Write(object)", New: "",
			Test: "./testbroker/internal/tpm2"},
	}
}
