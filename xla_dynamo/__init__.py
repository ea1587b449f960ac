"""xla_dynamo"""
