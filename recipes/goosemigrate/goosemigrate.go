// Package goosemigrate lets one of many instances migrate a database with goose.
package goosemigrate

import (
	"context"

	"github.com/pressly/goose/v3"

	"github.com/holdfast-go/holdfast"
)

// Up migrates under the lock "migrate", and waits while another instance does. A
// loss of the lock ends the context, and with it the statement that runs. Do not
// give the provider a session locker as well: this works behind PgBouncer.
func Up(ctx context.Context, locks *holdfast.Client, provider *goose.Provider) error {
	return locks.Do(ctx, "migrate", func(ctx context.Context) error {
		_, err := provider.Up(ctx)
		return err
	})
}
