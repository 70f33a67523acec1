package main

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/token"
)

func newKeys() *cobra.Command {
	generate := &cobra.Command{
		Use:   "generate",
		Short: "Make a signing key and print it for tokens.keys",
		Long: `generate prints a new key.

HS256         the part of the configuration that holds it, ready to be pasted.
ES256, EdDSA  a PEM file that begins with the part of the configuration that names it:
              gateway keys generate --alg ES256 > key.pem`,
		Args: cli.NoArgs,
	}
	alg := generate.Flags().String("alg", "HS256", "`ALG`: HS256 (one shared secret), ES256 or EdDSA (a public key with which others verify passes)")
	generate.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := generateKey(*alg)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	return cli.NewGroup("keys", "Signing keys", generate)
}

func generateKey(alg string) (string, error) {
	// A kid is never reused: tokens of a former key would be verified with a later one.
	id := "k-" + strings.ToLower(rand.Text()[:8])
	switch alg {
	case token.HS256:
		return fmt.Sprintf("tokens:\n  keys:\n    - {id: %s, alg: HS256, secret: %q, active: true}\n", id, token.GenerateSecret()), nil
	case token.ES256, token.EdDSA:
		block, err := token.GenerateKeyPEM(alg)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("# tokens:\n#   keys:\n#     - {id: %s, alg: %s, private_key_file: key.pem, active: true}\n%s", id, alg, block), nil
	}
	return "", &cli.UsageError{Err: fmt.Errorf("--alg %q is not known; use HS256, ES256 or EdDSA", alg)}
}
