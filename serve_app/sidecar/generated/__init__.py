"""Code that `make proto` generates from `verdicts.proto`. Do not edit it."""
