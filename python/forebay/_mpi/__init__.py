# SPDX-License-Identifier: Apache-2.0
"""What `forebay.MPI` is made of, lowest first: numbers, types and operations, messages, objects, requests, communicators."""
