"""What is packed in the images of fatbin containers: unpacked whole, when somebody asks."""
