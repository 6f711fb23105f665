"""Generated from protos/paceline/v1; do not edit."""
